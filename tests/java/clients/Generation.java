import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** What Kafka's clients have changed over the releases: a class for each set of releases that compiles alike. */
abstract class Generation {
    /** {@code record}: key, value, timestamp or null, headers; what a release does not know stays away. */
    abstract ProducerRecord<byte[], byte[]> record(String topic, int partition, JsonNode record) throws IOException;

    /** Null where RecordMetadata has none. */
    abstract Long timestamp(RecordMetadata sent);

    /** Adds timestamp, timestamp type and headers, as far as this release shows them. */
    abstract void addRest(ConsumerRecord<byte[], byte[]> record, ArrayNode row);

    abstract ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int milliseconds);

    abstract void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition);

    /** The first offset and the end offset of a partition that is assigned. */
    abstract long[] ends(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition);

    /** Null where nothing is committed. */
    abstract Long committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition);

    long[] offsetForTime(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long target) {
        throw new UnsupportedOperationException("this release has no offsetsForTimes");
    }

    void beginTransaction(KafkaProducer<byte[], byte[]> producer) {
        throw new UnsupportedOperationException("this release has no transactions");
    }

    void closeAtOnce(KafkaProducer<byte[], byte[]> producer) {
        producer.close();
    }

    static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }
}
