import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** 0.10.1 and 0.10.2: timestamps (KIP-32) and their search (KIP-33, KIP-79), no headers. */
final class Since0_10 extends Generation {
    @Override
    ProducerRecord<byte[], byte[]> record(String topic, int partition, JsonNode record) throws IOException {
        Long timestamp = record.hasNonNull(2) ? record.get(2).asLong() : null;
        return new ProducerRecord<>(topic, partition, timestamp, bytes(record.get(0)), bytes(record.get(1)));
    }

    @Override
    Long timestamp(RecordMetadata sent) {
        return sent.timestamp();
    }

    @Override
    void addRest(ConsumerRecord<byte[], byte[]> record, ArrayNode row) {
        row.add(record.timestamp()).add(record.timestampType().toString()).addNull();
    }

    @Override
    ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int milliseconds) {
        return consumer.poll(milliseconds);
    }

    @Override
    void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.seekToBeginning(List.of(partition));
    }

    @Override
    long[] ends(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        List<TopicPartition> one = List.of(partition);
        return new long[] {consumer.beginningOffsets(one).get(partition), consumer.endOffsets(one).get(partition)};
    }

    @Override
    long[] offsetForTime(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long target) {
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, target)).get(partition);
        return found == null ? null : new long[] {found.offset(), found.timestamp()};
    }

    @Override
    Long committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        OffsetAndMetadata found = consumer.committed(partition);
        return found == null ? null : found.offset();
    }
}
