import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.PriorityQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/** Opens logs with a clock that is set and a scheduler that follows it: what has no delay is done at once. */
final class NewLogs {
    // what nobody asks for its result
    private static final ScheduledFuture<?> FUTURE = (ScheduledFuture<?>) Proxy.newProxyInstance(
        NewLogs.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (proxy, method, arguments) -> false);
    long now;
    private long order;
    private final PriorityQueue<Task> tasks = new PriorityQueue<>();
    private final BrokerTopicStats stats = new BrokerTopicStats(false);

    private static final class Task implements Comparable<Task> {
        final long due;
        final long number;
        final Runnable work;

        Task(long due, long number, Runnable work) {
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
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
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
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            if (delay > 0) {
                tasks.add(new Task(now + delay, order++, task));
            } else {
                task.run();
            }
            return FUTURE;
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    };

    /** Sets the clock and does what is due. */
    void set(long ms) {
        now = ms;
        while (!tasks.isEmpty() && tasks.peek().due <= now) {
            tasks.poll().work.run();
        }
    }

    /** Forgets what was to be done. */
    void forget() {
        tasks.clear();
    }

    UnifiedLog opened(Path folder, LogConfig config, long recoveryPoint, boolean clean, long start) throws Exception {
        Files.createDirectories(folder);
        return UnifiedLog.apply(folder.toFile(), config, start, recoveryPoint, scheduler, stats, time, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), clean,
            scala.Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }
}
