import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Properties;
import kafka.common.LongRef;
import kafka.log.Log;
import kafka.log.LogAppendInfo;
import kafka.log.LogConfig;
import kafka.log.LogValidator;
import kafka.log.LogValidator$;
import kafka.message.CompressionCodec;
import kafka.message.CompressionCodec$;
import kafka.message.NoCompressionCodec$;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.TimestampType;

/** A leader's append as far as the bytes to be written. */
final class OldValidator implements Cases.Family {
    private final OldLogs logs = new OldLogs();
    private final Log log;
    private final Method analysis;

    OldValidator() throws Exception {
        log = logs.opened(Cases.folder().resolve("t-0"), new LogConfig(new Properties()), 0);
        analysis = Log.class.getDeclaredMethod("analyzeAndValidateRecords", MemoryRecords.class);
        analysis.setAccessible(true);
    }

    static CompressionCodec codec(int id) {
        return CompressionCodec$.MODULE$.getCompressionCodec(id);
    }

    @Override
    public void answer(JsonNode in, ObjectNode out) throws Throwable {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Cases.bytes(in, "bytes")));
        CompressionCodec source;
        CompressionCodec target;
        if (in.has("source_codec")) {
            source = codec(in.get("source_codec").asInt());
            target = codec(in.get("target_codec").asInt());
        } else {
            Properties settings = new Properties();
            settings.put("compression.type", in.get("compression_type").asText());
            if (in.has("max_message_bytes")) {
                settings.put("max.message.bytes", in.get("max_message_bytes").asText());
            }
            log.config_$eq(new LogConfig(settings));
            LogAppendInfo info;
            try {
                info = (LogAppendInfo) analysis.invoke(log, records);
            } catch (Throwable t) {
                out.put("stage", "analyze").set("error", Cases.error(Cases.thrown(t)));
                return;
            }
            source = info.sourceCodec();
            target = info.targetCodec();
            ObjectNode found = out.putObject("analysis");
            found.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset());
            found.put("max_timestamp", info.maxTimestamp());
            found.put("offset_of_max_timestamp", info.offsetOfMaxTimestamp());
            found.put("source_codec", source.codec()).put("target_codec", target.codec());
            found.put("shallow_count", info.shallowCount()).put("valid_bytes", info.validBytes());
            found.put("offsets_monotonic", info.offsetsMonotonic());
            if (info.shallowCount() == 0) {
                out.put("stage", "empty");
                return;
            }
            ByteBuffer whole = records.buffer().duplicate();
            whole.limit(info.validBytes());
            records = MemoryRecords.readableRecords(whole);
        }
        out.put("stage", "validate");
        LongRef counter = new LongRef(in.get("start_offset").asLong());
        try {
            LogValidator.ValidationAndOffsetAssignResult done = LogValidator$.MODULE$.validateMessagesAndAssignOffsets(
                records, counter, in.get("now").asLong(), source, target, in.get("compacted").asBoolean(),
                (byte) in.get("magic").asInt(), TimestampType.forName(in.get("ts_type").asText()),
                in.get("diff_max_ms").asLong());
            out.put("bytes", Cases.text(done.validatedRecords().buffer()));
            out.put("max_timestamp", done.maxTimestamp());
            out.put("offset_of_max_timestamp", done.shallowOffsetOfMaxTimestamp());
            out.put("size_maybe_changed", done.messageSizeMaybeChanged());
            out.put("byte_exact", !done.messageSizeMaybeChanged() || target == NoCompressionCodec$.MODULE$);
        } catch (Throwable t) {
            out.set("error", Cases.error(t));
        }
        out.put("next_offset", counter.value());
    }
}
