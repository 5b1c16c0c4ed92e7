import java.nio.file.Files;
import java.nio.file.Path;
import java.util.PriorityQueue;
import java.util.concurrent.TimeUnit;
import kafka.log.Log;
import kafka.log.LogConfig;
import kafka.utils.Scheduler;
import org.apache.kafka.common.utils.Time;
import scala.Function0;
import scala.runtime.BoxedUnit;

/** Opens logs with a clock that is set and a scheduler that follows it: what has no delay is done at once. */
final class OldLogs {
    long now;
    private long order;
    private final PriorityQueue<Task> tasks = new PriorityQueue<>();

    private static final class Task implements Comparable<Task> {
        final long due;
        final long number;
        final Function0<BoxedUnit> work;

        Task(long due, long number, Function0<BoxedUnit> work) {
            this.due = due;
            this.number = number;
            this.work = work;
        }

        @Override
        public int compareTo(Task other) {
            return due != other.due ? Long.compare(due, other.due) : Long.compare(number, other.number);
        }
    }

    final Time time = new Time() {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            now += ms;
        }

        @Override
        public long hiResClockMs() {
            return now;
        }
    };

    final Scheduler scheduler = new Scheduler() {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public boolean isStarted() {
            return true;
        }

        @Override
        public long schedule$default$3() {
            return 0;
        }

        @Override
        public long schedule$default$4() {
            return -1;
        }

        @Override
        public TimeUnit schedule$default$5() {
            return TimeUnit.MILLISECONDS;
        }

        @Override
        public void schedule(String name, Function0<BoxedUnit> task, long delay, long period, TimeUnit unit) {
            if (delay > 0) {
                tasks.add(new Task(now + unit.toMillis(delay), order++, task));
            } else {
                task.apply();
            }
        }
    };

    /** Sets the clock and does what is due. */
    void set(long ms) {
        now = ms;
        while (!tasks.isEmpty() && tasks.peek().due <= now) {
            tasks.poll().work.apply();
        }
    }

    /** Forgets what was to be done. */
    void forget() {
        tasks.clear();
    }

    Log opened(Path folder, LogConfig config, long recoveryPoint) throws Exception {
        Files.createDirectories(folder);
        return new Log(folder.toFile(), config, recoveryPoint, scheduler, time);
    }
}
