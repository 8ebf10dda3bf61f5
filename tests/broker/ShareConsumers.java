import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own share consumer and admin client on share groups. Prints one line for each step. */
public class ShareConsumers {
    static final int RECORDS = 60;
    static String bootstrap;

    static KafkaShareConsumer<byte[], byte[]> consumer(String group, String mode, String acquire) {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("group.id", group);
        set.put("share.acknowledgement.mode", mode);
        set.put("share.acquire.mode", acquire);
        set.put("max.poll.records", "10");
        KafkaShareConsumer<byte[], byte[]> made =
            new KafkaShareConsumer<>(set, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.subscribe(List.of("t"));
        return made;
    }

    static String key(ConsumerRecord<byte[], byte[]> record) {
        return record.partition() + "@" + record.offset();
    }

    /** Polls until something comes. */
    static List<ConsumerRecord<byte[], byte[]>> some(KafkaShareConsumer<byte[], byte[]> consumer) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        for (int tries = 0; found.isEmpty() && tries < 100; tries++)
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        return found;
    }

    static void fromTheStart(Admin admin, String group) throws Exception {
        ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
        admin.incrementalAlterConfigs(Map.of(
            new ConfigResource(ConfigResource.Type.GROUP, group),
            List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < RECORDS; n++)
                producer.send(new ProducerRecord<>("t", n % 3, null, ("v" + n).getBytes()));
        }

        fromTheStart(admin, "implicit");
        TreeSet<String> seen = new TreeSet<>();
        int count = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = consumer("implicit", "implicit", "batch_optimized")) {
            while (seen.size() < RECORDS)
                for (ConsumerRecord<byte[], byte[]> record : some(consumer)) {
                    seen.add(key(record));
                    count++;
                }
            consumer.commitSync();
        }
        System.out.println("implicit " + count + " of " + seen.size());
        long start = 0;
        var offsets = admin.listShareGroupOffsets(Map.of("implicit", new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo("implicit").get();
        long lag = offsets.values().stream().mapToLong(info -> info.lag().orElse(-1L)).sum();
        System.out.println("partitions " + offsets.size() + " lag " + lag);

        fromTheStart(admin, "explicit");
        TreeSet<String> accepted = new TreeSet<>();
        TreeSet<String> rejected = new TreeSet<>();
        int again = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = consumer("explicit", "explicit", "record_limit")) {
            int largest = 0;
            while (accepted.size() + rejected.size() < RECORDS) {
                List<ConsumerRecord<byte[], byte[]>> records = some(consumer);
                largest = Math.max(largest, records.size());
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    int deliveries = record.deliveryCount().get();
                    if (record.offset() % 5 == 0 && deliveries == 1)
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    else if (record.offset() % 5 == 1) {
                        consumer.acknowledge(record, AcknowledgeType.REJECT);
                        rejected.add(key(record));
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.add(key(record));
                        again += deliveries - 1;
                    }
                }
                consumer.commitSync().values().forEach(error -> error.ifPresent(System.out::println));
            }
            System.out.println("explicit accepted " + accepted.size() + " rejected " + rejected.size()
                + " again " + again + " within the limit " + (largest <= 10));
            ShareGroupDescription group =
                admin.describeShareGroups(List.of("explicit")).describedGroups().get("explicit").get();
            System.out.println("group " + group.groupState() + " members " + group.members().size());
        }

        fromTheStart(admin, "renewed");
        try (KafkaShareConsumer<byte[], byte[]> consumer = consumer("renewed", "explicit", "batch_optimized")) {
            List<ConsumerRecord<byte[], byte[]>> records = some(consumer);
            records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.RENEW));
            consumer.commitSync().values().forEach(error -> error.ifPresent(System.out::println));
            List<ConsumerRecord<byte[], byte[]>> held = some(consumer);
            held.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            boolean failed = consumer.commitSync().values().stream().anyMatch(error -> error.isPresent());
            System.out.println("renewed " + (records.size() == held.size()) + " failed " + failed);
        }

        TopicPartition first = new TopicPartition("t", 0);
        admin.alterShareGroupOffsets("implicit", Map.of(first, 15L)).all().get();
        try (KafkaShareConsumer<byte[], byte[]> consumer = consumer("implicit", "implicit", "batch_optimized")) {
            List<ConsumerRecord<byte[], byte[]>> records = some(consumer);
            System.out.println("altered " + key(records.get(0)) + " records " + records.size());
        }
        admin.deleteShareGroupOffsets("implicit", Collections.singleton("t")).all().get();
        admin.deleteShareGroups(List.of("implicit", "explicit", "renewed")).all().get();
        System.out.println("groups " + admin.listGroups().all().get().size());
        admin.close();
    }
}
