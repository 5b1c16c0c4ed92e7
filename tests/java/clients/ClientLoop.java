import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients of any release for a program that is not Java: {@code ClientLoop GENERATION}, where the generation
 * is the class here that compiles against that release.
 *
 * <p>Each line of standard input is a JSON object; {@code do} says what, {@code settings} are the client's. Each is
 * answered by one line: an object, with {@code error} where it failed. Bytes are base64. It ends with its input.
 */
public final class ClientLoop {
    static final long MOST_MS = 90_000;
    static final int POLL_MS = 100;
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Generation generation;
    private GroupOfMembers group;

    private ClientLoop(Generation generation) {
        this.generation = generation;
    }

    public static void main(String[] args) throws Exception {
        ClientLoop loop = new ClientLoop((Generation) Class.forName(args[0]).getDeclaredConstructor().newInstance());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                loop.answer(JSON.readTree(line), answer);
            } catch (Exception failed) {
                answer.put("error", (failed instanceof ExecutionException ? failed.getCause() : failed).toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0); // whatever a client's threads still wait for
    }

    private void answer(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("do").asText()) {
            case "produce" -> produce(asked, answer.putArray("sends"));
            case "consume" -> consume(asked, answer.putArray("rows"));
            case "ends" -> ends(asked, answer);
            case "times" -> times(asked, answer.putArray("answers"));
            case "committed" -> committed(asked, answer.putArray("offsets"));
            case "join" -> {
                group = new GroupOfMembers(generation, asked);
                group.assigned(answer.putArray("assigned"));
            }
            case "gather" -> group.gather(asked, answer.putArray("members"));
            case "transaction" -> transaction(asked);
            default -> throw new IllegalArgumentException("unknown: " + asked);
        }
    }

    static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        asked.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode asked) {
        return new KafkaProducer<>(settings(asked), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode asked) {
        return new KafkaConsumer<>(settings(asked), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** {@code records}: key, value, timestamp and headers of each; the answers are offset and timestamp, or an error. */
    private void produce(JsonNode asked, ArrayNode sends) throws Exception {
        String topic = asked.get("topic").asText();
        int partition = asked.get("partition").asInt();
        List<Future<RecordMetadata>> waiting = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(asked)) {
            for (JsonNode record : asked.get("records")) {
                waiting.add(producer.send(generation.record(topic, partition, record)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : waiting) {
                try {
                    RecordMetadata sent = each.get();
                    sends.addArray().add(sent.offset()).add(generation.timestamp(sent));
                } catch (ExecutionException refused) {
                    sends.add(refused.getCause().toString());
                }
            }
        }
    }

    /** {@code transactional.id} among the settings: what the first steps of a transaction say. */
    private void transaction(JsonNode asked) {
        KafkaProducer<byte[], byte[]> producer = producer(asked);
        try {
            generation.beginTransaction(producer);
        } finally {
            generation.closeAtOnce(producer);
        }
    }

    /** Every record of a partition from the beginning to the end. */
    private void consume(JsonNode asked, ArrayNode rows) {
        TopicPartition partition = partition(asked);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            consumer.assign(List.of(partition));
            long end = generation.ends(consumer, partition)[1];
            generation.seekToBeginning(consumer, partition);
            long until = System.currentTimeMillis() + MOST_MS;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > until) {
                    throw new IllegalStateException("no end: at " + consumer.position(partition) + " of " + end);
                }
                for (ConsumerRecord<byte[], byte[]> record : generation.poll(consumer, POLL_MS)) {
                    row(generation, record, rows);
                }
            }
        }
    }

    static void row(Generation generation, ConsumerRecord<byte[], byte[]> record, ArrayNode rows) {
        ArrayNode row = rows.addArray().add(record.partition()).add(record.offset());
        row.add(record.key()).add(record.value());
        generation.addRest(record, row);
    }

    static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
    }

    private void ends(JsonNode asked, ObjectNode answer) {
        TopicPartition partition = partition(asked);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            consumer.assign(List.of(partition));
            long[] ends = generation.ends(consumer, partition);
            answer.put("beginning", ends[0]).put("end", ends[1]);
        }
    }

    /** {@code targets}: one question each; the answers are {@code [offset, timestamp]} or null. */
    private void times(JsonNode asked, ArrayNode answers) {
        TopicPartition partition = partition(asked);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            for (JsonNode target : asked.get("targets")) {
                long[] found = generation.offsetForTime(consumer, partition, target.asLong());
                if (found == null) {
                    answers.addNull();
                } else {
                    answers.addArray().add(found[0]).add(found[1]);
                }
            }
        }
    }

    /** What a group has committed, by partition from 0 on; null where nothing is. */
    private void committed(JsonNode asked, ArrayNode offsets) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            for (int partition = 0; partition < asked.get("partitions").asInt(); partition++) {
                offsets.add(generation.committed(consumer, new TopicPartition(asked.get("topic").asText(), partition)));
            }
        }
    }
}
