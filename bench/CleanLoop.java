import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's cleaner, as one thread of a broker with default settings has it, over the partition directory of each line on
 * standard input. Each answer is a line: the records that it wrote, the CPU nanoseconds of this thread, and by how many
 * KiB the process has grown at most. Arguments: the memory of the offset map, and segment.bytes.
 */
public final class CleanLoop {
    private static final int EXPIRY_MS = 600_000;

    private CleanLoop() {}

    public static void main(String[] args) throws Exception {
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "segment.bytes", args[1]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        Cleaner cleaner = null;
        long before = mostKib();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (cleaner == null) {
                cleaner = cleaner(Integer.parseInt(args[0]));
            }
            UnifiedLog log = UnifiedLog.create(new File(line), config, 0, Long.MAX_VALUE, scheduler,
                new BrokerTopicStats(), Time.SYSTEM, EXPIRY_MS, new ProducerStateManagerConfig(EXPIRY_MS, false),
                EXPIRY_MS, new LogDirFailureChannel(1), true, Optional.empty());
            LogToClean dirty = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
            long start = clock.getCurrentThreadCpuTime();
            CleanerStats done = cleaner.doClean(dirty, System.currentTimeMillis()).getValue();
            long taken = clock.getCurrentThreadCpuTime() - start;
            log.close();
            System.out.println(done.messagesWritten() + " " + taken + " " + (mostKib() - before));
        }
        scheduler.shutdown();
    }

    private static Cleaner cleaner(int memory) throws Exception {
        int buffer = CleanerConfig.LOG_CLEANER_IO_BUFFER_SIZE / CleanerConfig.LOG_CLEANER_THREADS / 2;
        Throttler none = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        return new Cleaner(0, new SkimpyOffsetMap(memory), buffer, buffer,
            CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_LOAD_FACTOR, none, Time.SYSTEM, partition -> { });
    }

    private static long mostKib() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream().filter(line -> line.startsWith("VmHWM"))
            .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", ""))).sum();
    }
}
