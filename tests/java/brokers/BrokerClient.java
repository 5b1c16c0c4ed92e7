import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients for a program that is not Java: {@code BrokerClient}.
 *
 * <p>Each line of standard input is a JSON object; {@code do} says what, {@code bootstrap} at which broker. Each is
 * answered by one line: an object, with {@code error} where it failed. Bytes are base64. It ends with its input.
 */
public final class BrokerClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long MOST_MS = 60_000;
    private final Map<String, Sender> kept = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BrokerClient client = new BrokerClient();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                client.answer(JSON.readTree(line), answer);
            } catch (Exception failed) {
                answer.put("error", (failed instanceof ExecutionException ? failed.getCause() : failed).toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private void answer(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("do").asText()) {
            case "create" -> create(asked);
            case "produce" -> produce(asked, answer.putArray("sends"));
            case "consume" -> consume(asked, answer);
            case "times" -> times(asked, answer.putArray("answers"));
            case "forget" -> forget();
            default -> throw new IllegalArgumentException("unknown: " + asked);
        }
    }

    /** The client's own: {@code settings}, which may be missing. */
    private static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", asked.get("bootstrap").asText());
        settings.put("retry.backoff.ms", "10"); // each client waits so long for what it first learns of a topic
        asked.path("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    /** Closes the producers that were kept; their broker may be gone. */
    private void forget() {
        kept.values().forEach(each -> each.producer.close(Duration.ZERO));
        kept.clear();
    }

    /** {@code topics}: name to configuration; one partition each. */
    private void create(JsonNode asked) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        asked.get("topics").fields().forEachRemaining(topic -> {
            Map<String, String> configs = new HashMap<>();
            topic.getValue().fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
            topics.add(new NewTopic(topic.getKey(), 1, (short) 1).configs(configs));
        });
        try (Admin admin = Admin.create(settings(asked))) {
            admin.createTopics(topics).all().get();
        }
    }

    /**
     * {@code groups}: lists of records, each sent as one batch where the settings allow it. With a
     * {@code transactional.id} each is a transaction, or goes on with the open one; {@code ends} says how each ends:
     * commit, abort or open. A producer that {@code keep} names is kept for later commands.
     */
    private void produce(JsonNode asked, ArrayNode sends) throws Exception {
        String name = asked.path("keep").asText(null);
        Sender sender = kept.containsKey(name) ? kept.get(name) : new Sender(settings(asked));
        if (name != null) {
            kept.put(name, sender);
        }
        try {
            int group = 0;
            for (JsonNode records : asked.get("groups")) {
                sender.begin();
                List<Future<RecordMetadata>> waiting = new ArrayList<>();
                for (JsonNode record : records) {
                    waiting.add(sender.producer.send(record(asked.get("topic").asText(), record)));
                }
                sender.producer.flush();
                for (Future<RecordMetadata> sent : waiting) {
                    sends.add(sent(sent));
                }
                sender.end(asked.path("ends").path(group++).asText());
            }
        } finally {
            if (name == null) {
                sender.producer.close();
            }
        }
    }

    /** A producer and whether it has a transaction open. */
    private static final class Sender {
        final KafkaProducer<byte[], byte[]> producer;
        private final boolean transactional;
        private boolean open;

        Sender(Map<String, Object> settings) {
            settings.putIfAbsent("linger.ms", "10000");
            settings.putIfAbsent("batch.size", "1000000");
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            transactional = settings.containsKey("transactional.id");
            if (transactional) {
                producer.initTransactions();
            }
        }

        void begin() {
            if (transactional && !open) {
                producer.beginTransaction();
                open = true;
            }
        }

        void end(String how) {
            if (how.equals("commit")) {
                producer.commitTransaction();
            } else if (how.equals("abort")) {
                producer.abortTransaction();
            } else {
                return;
            }
            open = false;
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) throws Exception {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.withArray("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), header.get(1).binaryValue()));
        }
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
        return new ProducerRecord<>(topic, 0, timestamp, bytes(record, "key"), bytes(record, "value"), headers);
    }

    private static byte[] bytes(JsonNode record, String name) throws Exception {
        return record.hasNonNull(name) ? record.get(name).binaryValue() : null;
    }

    private static ObjectNode sent(Future<RecordMetadata> waiting) throws InterruptedException {
        ObjectNode answer = JSON.createObjectNode();
        try {
            RecordMetadata sent = waiting.get();
            answer.put("offset", sent.offset()).put("timestamp", sent.timestamp());
        } catch (ExecutionException refused) {
            answer.put("error", refused.getCause().toString());
        }
        return answer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode asked) {
        Map<String, Object> settings = settings(asked);
        settings.put("fetch.max.wait.ms", "10"); // closing waits for the fetch that is under way
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Every record from the beginning to the end that the broker names first. */
    private void consume(JsonNode asked, ObjectNode answer) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            List<TopicPartition> one = List.of(partition);
            consumer.assign(one);
            consumer.seekToBeginning(one);
            long end = consumer.endOffsets(one).get(partition);
            answer.put("beginningOffset", consumer.beginningOffsets(one).get(partition)).put("endOffset", end);
            long until = System.currentTimeMillis() + MOST_MS;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > until) {
                    throw new IllegalStateException("no end: at " + consumer.position(partition) + " of " + end);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    records.add(json(record));
                }
            }
        }
    }

    private static ObjectNode json(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("offset", record.offset()).put("timestamp", record.timestamp());
        line.put("timestampType", record.timestampType().toString());
        line.put("key", record.key()).put("value", record.value());
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value() == null
                ? null : Base64.getEncoder().encodeToString(header.value()));
        }
        return line;
    }

    /** {@code targets}: one question each; the answers are {@code [timestamp, offset]} or null. */
    private void times(JsonNode asked, ArrayNode answers) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            for (JsonNode target : asked.get("targets")) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, target.asLong())).get(partition);
                if (found == null) {
                    answers.addNull();
                } else {
                    answers.addArray().add(found.timestamp()).add(found.offset());
                }
            }
        }
    }
}
