/** All that needs one broker, in one process: to start one takes longer than most of what is asked of it. */
import './areas/services.ts';
import './areas/consume.ts';
import './areas/doubt.ts';
import './areas/produce.ts';
import './areas/readme.ts';
import './areas/package.ts';
