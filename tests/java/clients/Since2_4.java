import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** 2.4 to 4.3: headers and transactions. */
final class Since2_4 extends Generation {
    @Override
    ProducerRecord<byte[], byte[]> record(String topic, int partition, JsonNode record) throws IOException {
        Long timestamp = record.hasNonNull(2) ? record.get(2).asLong() : null;
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get(3)) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(topic, partition, timestamp, bytes(record.get(0)), bytes(record.get(1)), headers);
    }

    @Override
    Long timestamp(RecordMetadata sent) {
        return sent.timestamp();
    }

    @Override
    void addRest(ConsumerRecord<byte[], byte[]> record, ArrayNode row) {
        ArrayNode headers = row.add(record.timestamp()).add(record.timestampType().toString()).addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
    }

    @Override
    ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int milliseconds) {
        return consumer.poll(Duration.ofMillis(milliseconds));
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
        OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
        return found == null ? null : found.offset();
    }

    @Override
    void beginTransaction(KafkaProducer<byte[], byte[]> producer) {
        producer.initTransactions();
        producer.beginTransaction();
    }

    @Override
    void closeAtOnce(KafkaProducer<byte[], byte[]> producer) {
        producer.close(Duration.ZERO);
    }
}
