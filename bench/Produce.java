// Creates a topic and fills it through Kafka's own producer: keys "user-n", JSON values of about 100 bytes.
// Arguments: bootstrap address, topic, partitions, records, seed.

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Produce {
    private static final String[] CITIES = {"Berlin", "Nairobi", "Osaka", "Lima", "Toronto", "Pune"};
    private static final long START_MS = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        Map<String, Object> where = Map.of("bootstrap.servers", args[0]);
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int records = Integer.parseInt(args[3]);
        try (Admin admin = Admin.create(where)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "linger.ms", 50, "acks", "all");
        ByteArraySerializer bytes = new ByteArraySerializer();
        Random random = new Random(Long.parseLong(args[4]));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int i = 0; i < records; i++) {
                int number = random.nextInt(1_000_000_000);
                String value = "{\"id\":" + number + ",\"city\":\"" + CITIES[number % 6] + "\",\"amount\":"
                        + number % 99999 / 100.0 + ",\"paid\":true,\"sku\":\"" + number * 7919L % 1_000_000_000_000L + "\"}";
                String key = "user-" + (1000 + random.nextInt(100_000_000));
                producer.send(new ProducerRecord<>(topic, i % partitions, START_MS + i,
                        key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8)));
            }
        }
    }
}
