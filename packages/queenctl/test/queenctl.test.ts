/** The program as a process, against a broker: all areas in one process, as they share that broker. */
import './areas/messages.ts';
import './areas/administration.ts';
import './areas/keys_and_timers.ts';
import './areas/manifests.ts';
import './areas/shell.ts';
import './areas/readme.ts';
import './areas/package.ts';
