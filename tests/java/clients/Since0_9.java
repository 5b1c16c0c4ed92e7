import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** 0.9: records without timestamps. */
final class Since0_9 extends Generation {
    @Override
    ProducerRecord<byte[], byte[]> record(String topic, int partition, JsonNode record) throws IOException {
        return new ProducerRecord<>(topic, partition, bytes(record.get(0)), bytes(record.get(1)));
    }

    @Override
    Long timestamp(RecordMetadata sent) {
        return null;
    }

    @Override
    void addRest(ConsumerRecord<byte[], byte[]> record, ArrayNode row) {
        row.addNull().addNull().addNull();
    }

    @Override
    ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int milliseconds) {
        return consumer.poll(milliseconds);
    }

    @Override
    void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.seekToBeginning(partition);
    }

    @Override
    long[] ends(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.seekToBeginning(partition);
        long beginning = consumer.position(partition);
        consumer.seekToEnd(partition);
        return new long[] {beginning, consumer.position(partition)};
    }

    @Override
    Long committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        OffsetAndMetadata found = consumer.committed(partition);
        return found == null ? null : found.offset();
    }
}
