/** All that asks a broker, in one process: to start one takes longer than most of what is asked of it. */
import './running/readme.ts';
import './running/metrics.ts';
