import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Consumers of one group, a thread each, that poll until they are told to stop; then they commit and leave. */
final class GroupOfMembers {
    private final List<Member> members = new ArrayList<>();
    private final CountDownLatch committed;

    /** Starts {@code members} of them, and waits until all {@code partitions} of the topic are spread over all. */
    GroupOfMembers(Generation generation, JsonNode asked) throws InterruptedException {
        int count = asked.get("members").asInt();
        committed = new CountDownLatch(count);
        for (int number = 0; number < count; number++) {
            Member member = new Member(generation, asked);
            members.add(member);
            member.start();
        }
        int partitions = asked.get("partitions").asInt();
        await("every member has partitions", () -> members.stream().mapToInt(member -> member.assigned).sum() == partitions
            && members.stream().allMatch(member -> member.assigned > 0));
    }

    void assigned(ArrayNode counts) {
        members.forEach(member -> counts.add(member.assigned));
    }

    /** Waits until the members have {@code count} records, stops them, and tells what each has got. */
    void gather(JsonNode asked, ArrayNode answer) throws InterruptedException {
        int count = asked.get("count").asInt();
        await("the members have " + count + " records", () -> members.stream().mapToInt(Member::size).sum() >= count);
        members.forEach(member -> member.over = true);
        await("all have left", () -> members.stream().noneMatch(Thread::isAlive));
        members.forEach(member -> answer.add(member.rows));
    }

    private void await(String what, BooleanSupplier holds) throws InterruptedException {
        long until = System.currentTimeMillis() + ClientLoop.MOST_MS;
        do {
            for (Member member : members) {
                if (member.failed != null) {
                    throw new IllegalStateException("a member failed", member.failed);
                }
            }
            if (holds.getAsBoolean()) {
                return;
            }
            Thread.sleep(5);
        } while (System.currentTimeMillis() < until);
        throw new IllegalStateException("it never comes that " + what);
    }

    /** One consumer in its thread. */
    private final class Member extends Thread implements ConsumerRebalanceListener {
        final ArrayNode rows = new ObjectMapper().createArrayNode();
        volatile int assigned;
        volatile boolean over;
        volatile Exception failed;
        private final Generation generation;
        private final JsonNode asked;

        Member(Generation generation, JsonNode asked) {
            this.generation = generation;
            this.asked = asked;
            setDaemon(true);
        }

        synchronized int size() {
            return rows.size();
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = ClientLoop.consumer(asked)) {
                consumer.subscribe(List.of(asked.get("topic").asText()), this);
                while (!over) {
                    for (ConsumerRecord<byte[], byte[]> record : generation.poll(consumer, ClientLoop.POLL_MS)) {
                        synchronized (this) {
                            ClientLoop.row(generation, record, rows);
                        }
                    }
                    assigned = consumer.assignment().size();
                }
                consumer.commitSync();
                committed.countDown();
                committed.await(); // who leaves earlier moves the others' partitions about
            } catch (Exception problem) {
                failed = problem;
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            assigned = 0; // until the next round is over
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }
    }
}
