import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own consumers in one group: both protocols, a pattern, a static member. Prints what test_consumer_groups_peers checks. */
public class ConsumerGroups {
    static class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> values = new ArrayList<>();
        final List<String> events = new ArrayList<>();

        Member(String bootstrap, String protocol, String instance) {
            Properties set = new Properties();
            set.put("bootstrap.servers", bootstrap);
            set.put("group.id", "g");
            set.put("group.protocol", protocol);
            set.put("auto.offset.reset", "earliest");
            set.put("enable.auto.commit", "false");
            if (instance != null) set.put("group.instance.id", instance);
            if (protocol.equals("classic")) {
                set.put("heartbeat.interval.ms", "200");
                set.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            }
            consumer = new KafkaConsumer<>(set, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        Set<Integer> owned() {
            Set<Integer> found = new TreeSet<>();
            for (TopicPartition part : consumer.assignment()) found.add(part.partition());
            return found;
        }

        void poll() {
            for (var record : consumer.poll(Duration.ofMillis(20))) values.add(new String(record.value()));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> parts) {
            events.add("revoked " + parts.size());
            consumer.commitSync();
        }

        public void onPartitionsAssigned(Collection<TopicPartition> parts) {
            events.add("assigned " + parts.size());
        }
    }

    static void until(String what, BooleanSupplier done, Member... members) {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException("timed out: " + what);
            for (Member member : members) member.poll();
        }
        StringBuilder line = new StringBuilder(what);
        for (Member member : members) line.append(" ").append(member.owned().size());
        System.out.println(line);
    }

    public static void main(String[] args) {
        int records = Integer.parseInt(args[1]);
        Member one = new Member(args[0], "consumer", null);
        one.consumer.subscribe(List.of("t"), one);
        until("alone", () -> one.owned().size() == 4 && one.values.size() == records, one);
        one.consumer.commitSync();
        Member two = new Member(args[0], "consumer", "i");
        two.consumer.subscribe(new SubscriptionPattern("t|never[0-9]+"), two);
        until("pattern", () -> one.owned().size() == 2 && two.owned().size() == 2, one, two);
        two.consumer.close();
        Member again = new Member(args[0], "consumer", "i");
        again.consumer.subscribe(new SubscriptionPattern("t|never[0-9]+"), again);
        until("static", () -> again.owned().size() == 2, one, again);
        Member classic = new Member(args[0], "classic", null);
        classic.consumer.subscribe(List.of("t"), classic);
        until("classic joins", () -> classic.owned().size() >= 1 && one.owned().size() + again.owned().size() == 3 && classic.owned().size() == 1, one, again, classic);
        one.consumer.close();
        again.consumer.close();
        until("downgraded", () -> classic.owned().size() == 4, classic);
        System.out.println("again " + (two.values.size() + again.values.size() + classic.values.size()));
        Member back = new Member(args[0], "consumer", null);
        back.consumer.subscribe(List.of("t"), back);
        until("upgraded", () -> classic.owned().size() == 2 && back.owned().size() == 2, classic, back);
        classic.consumer.close();
        until("alone", () -> back.owned().size() == 4, back);
        back.consumer.close();
        System.out.println(String.join(", ", one.events));
    }
}
