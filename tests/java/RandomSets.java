import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Record sets as Kafka's producers, brokers and log cleaner write them, of every magic and codec, at random. */
final class RandomSets {
    private static final long[] OFFSETS = {0, 0, 1, 100, Integer.MAX_VALUE - 3L, 1L << 31, 1L << 40, 1L << 62,
        Long.MAX_VALUE - 200_000_000};
    private static final long[] TIMES = {-1, 0, 1, 1_500_000_000_000L, 1_700_000_123_456L, 253_402_300_799_999L, 1L << 62,
        Long.MAX_VALUE};
    private static final String[] NAMES = {"", "h", "trace-id", "gr\u00f6\u00dfe", "\ud83d\ude00", "x".repeat(70)};
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);

    private RandomSets() {}

    static byte[] next(Random random) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(512);
        long offset = one(random, OFFSETS);
        for (int batches = 0; batches < 2; batches++) {
            MemoryRecords some = batch(random, offset);
            for (MutableRecordBatch each : some.batches()) {
                offset = each.lastOffset() + 1 + random.nextInt(2);
            }
            out.write(some.buffer().duplicate());
        }
        MemoryRecords set = MemoryRecords.readableRecords(out.buffer().flip());
        ByteBuffer bytes = (random.nextInt(5) == 0 ? compacted(random, set) : set).buffer().duplicate();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return copy;
    }

    /** What the log cleaner leaves of a set: gaps, empty batches, delete horizons. */
    private static MemoryRecords compacted(Random random, MemoryRecords set) {
        int chance = 1 + random.nextInt(4);
        RecordFilter filter = new RecordFilter(1_800_000_000_000L, 86_400_000L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(batch.magic() < 2 ? BatchRetention.DELETE_EMPTY
                    : BatchRetention.RETAIN_EMPTY, random.nextBoolean());
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return random.nextInt(4) < chance;
            }
        };
        ByteBuffer target = ByteBuffer.allocate(set.sizeInBytes() + 1024);
        ByteBuffer cleaned = set.filterTo(PARTITION, filter, target, Integer.MAX_VALUE, BufferSupplier.NO_CACHING)
            .outputBuffer();
        return MemoryRecords.readableRecords(cleaned.flip());
    }

    private static MemoryRecords batch(Random random, long offset) {
        byte magic = (byte) (random.nextInt(5) < 3 ? 2 : random.nextInt(2));
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : random.nextInt(3) > 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
        long now = one(random, TIMES);
        boolean producer = magic == 2 && random.nextInt(3) == 0;
        boolean transactional = producer && random.nextBoolean();
        int kind = magic == 2 ? random.nextInt(12) : -1;
        int leaderEpoch = magic < 2 ? -1 : random.nextInt(3) == 0 ? Integer.MAX_VALUE : random.nextInt(100);
        short epoch = (short) random.nextInt(Short.MAX_VALUE + 1);
        if (kind == 0) {
            return marker(random, offset, now, leaderEpoch, epoch);
        }
        if (kind == 1) {
            return empty(random, offset, type, now, leaderEpoch, transactional);
        }
        int sequence = !producer ? -1 : random.nextInt(4) == 0 ? Integer.MAX_VALUE - random.nextInt(4)
            : random.nextInt(1000);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(256), magic,
            compression(random, magic), type, offset, type == TimestampType.LOG_APPEND_TIME ? now : -1,
            producer ? random.nextLong() & Long.MAX_VALUE : -1, producer ? epoch : -1, sequence, transactional, false,
            leaderEpoch, Integer.MAX_VALUE, kind == 2 ? Math.max(now, 0) : RecordBatch.NO_TIMESTAMP);
        for (int left = 1 + random.nextInt(random.nextInt(100) == 0 ? 200 : 8); left > 0; left--) {
            long time = magic == 0 ? -1 : random.nextInt(10) == 0 ? one(random, TIMES)
                : Math.max(-1, now - random.nextInt(1000));
            builder.appendWithOffset(offset, time, bytes(random, 20), bytes(random, 200), headers(random, magic));
            offset += random.nextInt(10) > 0 ? 1 : 1 + random.nextInt(random.nextInt(10) == 0 ? 1_000_000 : 9);
        }
        return builder.build();
    }

    private static Compression compression(Random random, byte magic) {
        CompressionType codec = CompressionType.forId(random.nextInt(magic == 2 ? 5 : 4));
        boolean other = random.nextInt(4) == 0; // than the default level
        switch (codec) {
            case GZIP: return other ? Compression.gzip().level(1 + random.nextInt(9)).build() : Compression.of(codec).build();
            case LZ4: return other ? Compression.lz4().level(1 + random.nextInt(17)).build() : Compression.of(codec).build();
            case ZSTD: return other ? Compression.zstd().level(random.nextInt(16) - 5).build() : Compression.of(codec).build();
            default: return Compression.of(codec).build();
        }
    }

    private static MemoryRecords marker(Random random, long offset, long now, int leaderEpoch, short epoch) {
        if (random.nextInt(4) == 0) {
            return MemoryRecords.withLeaderChangeMessage(offset, now, leaderEpoch, ByteBuffer.allocate(256),
                new LeaderChangeMessage().setLeaderId(random.nextInt(9)));
        }
        ControlRecordType outcome = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(offset, now, leaderEpoch, random.nextInt(1000), epoch,
            new EndTransactionMarker(outcome, random.nextInt(9)));
    }

    private static MemoryRecords empty(Random random, long offset, TimestampType type, long now, int leaderEpoch,
                                       boolean transactional) {
        ByteBuffer header = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(header, RecordBatch.MAGIC_VALUE_V2, random.nextInt(1000), (short) 1, 5, offset,
            offset + random.nextInt(9), leaderEpoch, type, now, transactional, random.nextBoolean());
        return MemoryRecords.readableRecords(header.flip());
    }

    private static long one(Random random, long[] values) {
        return values[random.nextInt(values.length)];
    }

    private static byte[] bytes(Random random, int most) {
        int kind = random.nextInt(1000);
        if (kind < 120) {
            return null;
        }
        byte[] some = new byte[kind < 250 ? 0 : kind == 999 ? 70_000 : 1 + random.nextInt(most)];
        if (kind % 2 == 0) {
            random.nextBytes(some);
        }
        return some;
    }

    private static Header[] headers(Random random, byte magic) {
        Header[] headers = new Header[magic == 2 && random.nextInt(3) == 0 ? 1 + random.nextInt(4) : 0];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(NAMES[random.nextInt(NAMES.length)], bytes(random, 30));
        }
        return headers;
    }
}
