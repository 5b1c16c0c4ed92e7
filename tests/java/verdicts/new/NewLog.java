import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.log.UnifiedLog;
import kafka.server.RequestLocal;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;

/** Steps on a whole log with a clock of its own. */
final class NewLog implements Cases.Family {
    @Override
    public void answer(JsonNode in, ObjectNode out) throws Throwable {
        Path home = Files.createTempDirectory("log");
        try {
            new Run(in, home).answer(out);
        } finally {
            Cases.delete(home);
        }
    }

    private static final class Run {
        final NewLogs logs = new NewLogs();
        final JsonNode in;
        final Path folder;
        final LogConfig config;
        final Map<Long, long[]> known = new HashMap<>(); // size and time by base offset
        UnifiedLog log;

        Run(JsonNode in, Path home) throws Exception {
            this.in = in;
            folder = home.resolve("t-0");
            logs.now = in.get("now").asLong();
            Properties settings = new Properties();
            in.get("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
            config = new LogConfig(settings);
            log = logs.opened(folder, config, 0, true, 0);
        }

        void answer(ObjectNode out) throws Exception {
            state(out.putObject("initial"));
            ArrayNode answers = out.putArray("answers");
            for (JsonNode step : in.get("steps")) {
                ObjectNode answer = answers.addObject();
                try {
                    take(step, answer);
                } catch (Throwable t) {
                    answer.set("error", NewValidator.error(t));
                    if (step.get("do").asText().equals("reopen")) {
                        out.put("aborted", true);
                        return;
                    }
                }
                state(answer);
            }
            ArrayNode files = out.putArray("files");
            String[] names = folder.toFile().list();
            Arrays.sort(names);
            for (String name : names) {
                if (name.matches("[0-9]{20}\\.(log|index|timeindex)(\\.deleted)?")) {
                    files.add(name);
                }
            }
            ArrayNode last = out.putArray("final");
            for (LogSegment segment : log.logSegments()) {
                ObjectNode each = last.addObject();
                each.put("base", segment.baseOffset()).put("size", segment.size());
                index(each, "index", segment.offsetIndex(), 8);
                index(each, "timeindex", segment.timeIndex(), 12);
                each.put("log_sha1_8", Cases.sha1(Files.readAllBytes(segment.log().file().toPath())));
            }
        }

        static void index(ObjectNode out, String name, AbstractIndex index, int entry) throws Exception {
            byte[] data = Files.readAllBytes(index.file().toPath());
            out.put(name, Cases.text(Arrays.copyOf(data, index.entries() * entry)));
            out.put(name + "_file_len", data.length).put(name + "_entries", index.entries());
        }

        void state(ObjectNode out) throws Exception {
            ArrayNode segments = out.putArray("segments");
            for (LogSegment segment : log.logSegments()) {
                long[] before = known.get(segment.baseOffset());
                if (before == null || before[0] != segment.size()) {
                    before = new long[] {segment.size(), logs.now};
                    known.put(segment.baseOffset(), before);
                }
                segment.log().file().setLastModified(before[1]);
                segments.add(Cases.list(segment.baseOffset(), segment.size(), segment.largestTimestamp()));
            }
            out.put("start", log.logStartOffset()).put("end", log.logEndOffset());
        }

        void take(JsonNode step, ObjectNode answer) throws Throwable {
            switch (step.get("do").asText()) {
                case "clock":
                    logs.set(step.get("now").asLong());
                    break;
                case "append":
                    appended(answer, log.appendAsLeader(records(step), 0, AppendOrigin.CLIENT,
                        MetadataVersion.latestProduction(), RequestLocal.NoCaching(), VerificationGuard.SENTINEL));
                    break;
                case "append_follower":
                    appended(answer, log.appendAsFollower(records(step), Integer.MAX_VALUE));
                    break;
                case "retention":
                    answer.put("answer", log.deleteOldSegments());
                    break;
                case "fetch_ts":
                    fetch(step, answer.putArray("answer"));
                    break;
                case "roll":
                    answer.put("answer", log.roll(Option.empty()).baseOffset());
                    break;
                case "truncate":
                    answer.put("answer", log.truncateTo(step.get("offset").asLong()));
                    break;
                case "truncate_fully":
                    log.truncateFullyAndStartAt(step.get("offset").asLong(), Option.empty());
                    break;
                case "start_offset":
                    answer.put("answer", log.maybeIncrementLogStartOffset(step.get("offset").asLong(),
                        LogStartOffsetIncrementReason.ClientRecordDeletion));
                    break;
                case "read":
                    FetchDataInfo found = log.read(step.get("offset").asLong(), step.get("max").asInt(),
                        FetchIsolation.LOG_END, step.get("min_one").asBoolean());
                    answer.put("size", found.records.sizeInBytes()).put("sha1_8", Cases.sha1(bytes(found.records)));
                    answer.put("first_entry_incomplete", found.firstEntryIncomplete);
                    break;
                case "reopen":
                    reopen(step, answer);
                    break;
                default:
                    throw new IllegalStateException(step.toString());
            }
        }

        static MemoryRecords records(JsonNode step) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(Cases.bytes(step, "bytes")));
        }

        static byte[] bytes(Records records) throws Exception {
            if (records instanceof MemoryRecords) {
                return Cases.copy(((MemoryRecords) records).buffer());
            }
            ByteBuffer buffer = ByteBuffer.allocate(records.sizeInBytes());
            ((FileRecords) records).readInto(buffer, 0);
            return Cases.copy(buffer);
        }

        void appended(ObjectNode answer, LogAppendInfo info) {
            log.updateHighWatermark(log.logEndOffset());
            answer.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset());
            answer.put("max_timestamp", info.maxTimestamp()).put("log_append_time", info.logAppendTime());
            answer.put("valid_bytes", info.validBytes());
        }

        void fetch(JsonNode step, ArrayNode answer) {
            for (JsonNode target : step.get("ts")) {
                try {
                    Option<FileRecords.TimestampAndOffset> found =
                        log.fetchOffsetByTimestamp(target.asLong(), Option.empty());
                    if (found.isEmpty()) {
                        answer.addNull();
                    } else {
                        answer.add(Cases.list(found.get().timestamp, found.get().offset));
                    }
                } catch (Throwable t) {
                    answer.add(NewValidator.error(t));
                }
            }
        }

        void reopen(JsonNode step, ObjectNode answer) throws Exception {
            boolean clean = step.get("clean").asBoolean();
            long last = log.activeSegment().baseOffset();
            long start = log.logStartOffset();
            if (clean) {
                log.close();
            }
            if (step.has("damage")) {
                for (JsonNode each : step.get("damage")) {
                    String name = String.format("%020d", Cases.number(each, "base", last));
                    Cases.damage(folder.resolve(name + "." + each.get("file").asText()), each);
                }
            }
            logs.forget();
            log = logs.opened(folder, config, Cases.number(step, "recovery_point", 0), clean, start);
            log.updateHighWatermark(log.logEndOffset());
            answer.put("recovery_point", log.recoveryPoint());
        }
    }
}
