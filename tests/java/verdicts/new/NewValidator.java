import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeMap;
import kafka.log.UnifiedLog;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** A leader's append as far as the bytes to be written. */
final class NewValidator implements Cases.Family {
    private final NewLogs logs = new NewLogs();
    private final UnifiedLog log;
    private final Method analysis;

    NewValidator() throws Exception {
        Path folder = Cases.folder().resolve("t-0");
        log = logs.opened(folder, new LogConfig(new Properties()), 0, true, 0);
        analysis = UnifiedLog.class.getDeclaredMethod("analyzeAndValidateRecords", MemoryRecords.class,
            AppendOrigin.class, boolean.class, boolean.class, int.class);
        analysis.setAccessible(true);
    }

    static ObjectNode error(Throwable t) {
        ObjectNode error = Cases.error(t);
        Throwable counts = t;
        if (t instanceof RecordValidationException) {
            RecordValidationException refused = (RecordValidationException) t;
            counts = refused.invalidException();
            error.put("invalid", counts.getClass().getName());
            ArrayNode list = error.putArray("record_errors");
            for (ProduceResponse.RecordError each : refused.recordErrors()) {
                list.add(Cases.list(each.batchIndex, each.message));
            }
        }
        error.put("code", Errors.forException(counts).code());
        return error;
    }

    @Override
    public void answer(JsonNode in, ObjectNode out) throws Throwable {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Cases.bytes(in, "bytes")));
        AppendOrigin origin = AppendOrigin.valueOf(in.has("origin") ? in.get("origin").asText() : "CLIENT");
        int epoch = in.get("leader_epoch").asInt();
        CompressionType source;
        Compression target;
        if (in.has("source_codec")) {
            source = CompressionType.forId(in.get("source_codec").asInt());
            target = Compression.of(CompressionType.forId(in.get("target_codec").asInt())).build();
        } else {
            Properties settings = new Properties();
            settings.put("compression.type", in.get("compression_type").asText());
            if (in.has("max_message_bytes")) {
                settings.put("max.message.bytes", in.get("max_message_bytes").asText());
            }
            LogConfig config = new LogConfig(settings);
            log.updateConfig(config);
            LogAppendInfo info;
            try {
                info = (LogAppendInfo) analysis.invoke(log, records, origin, false, false, epoch);
            } catch (Throwable t) {
                out.put("stage", "analyze").set("error", error(Cases.thrown(t)));
                return;
            }
            source = info.sourceCompression();
            ObjectNode found = out.putObject("analysis");
            found.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset());
            found.put("max_timestamp", info.maxTimestamp()).put("source_codec", source.id);
            found.put("valid_bytes", info.validBytes());
            if (info.validBytes() <= 0) {
                out.put("stage", "empty");
                return;
            }
            target = BrokerCompressionType.targetCompression(config.compression, source);
            found.put("target_codec", target.type().id);
            ByteBuffer whole = records.buffer().duplicate();
            whole.limit(info.validBytes());
            records = MemoryRecords.readableRecords(whole);
        }
        out.put("stage", "validate");
        logs.now = in.get("now").asLong();
        PrimitiveRef.LongRef counter = PrimitiveRef.ofLong(in.get("start_offset").asLong());
        TreeMap<String, Integer> calls = new TreeMap<>();
        InvocationHandler count = (proxy, method, arguments) -> {
            calls.merge(method.getName(), 1, Integer::sum);
            return null;
        };
        LogValidator.MetricsRecorder recorder = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
            NewValidator.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class}, count);
        MetadataVersion version = in.has("ibp")
            ? MetadataVersion.fromVersionString(in.get("ibp").asText()) : MetadataVersion.latestProduction();
        try {
            LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), logs.time, source, target,
                in.get("compacted").asBoolean(), (byte) in.get("magic").asInt(),
                TimestampType.forName(in.get("ts_type").asText()), in.get("before_max_ms").asLong(),
                in.get("after_max_ms").asLong(), epoch, origin, version);
            LogValidator.ValidationResult done =
                validator.validateMessagesAndAssignOffsets(counter, recorder, BufferSupplier.NO_CACHING);
            out.put("bytes", Cases.text(done.validatedRecords.buffer()));
            out.put("max_timestamp", done.maxTimestampMs).put("log_append_time", done.logAppendTimeMs);
            out.put("size_maybe_changed", done.messageSizeMaybeChanged);
            out.put("byte_exact", !done.messageSizeMaybeChanged || target.type() == CompressionType.NONE);
        } catch (Throwable t) {
            out.set("error", error(t));
        }
        out.put("next_offset", counter.value);
        if (!calls.isEmpty()) {
            out.putPOJO("metrics", calls);
        }
    }
}
