import java.nio.file.Files;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams with group.protocol=streams: a count through a repartition topic. Prints one line for each step. */
public class StreamsProgram {
    static final int RECORDS = 60;
    static final int WORDS = 6;
    static String bootstrap;

    static KafkaStreams application(String instance, String guarantee) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("t", Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((key, value) -> value)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        Properties set = new Properties();
        set.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        set.put(StreamsConfig.CLIENT_ID_CONFIG, instance);
        set.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        set.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        set.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        set.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        set.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        set.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        set.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams").toString());
        set.put("auto.offset.reset", "earliest");
        KafkaStreams made = new KafkaStreams(builder.build(), set);
        made.start();
        return made;
    }

    static void until(String what, BooleanSupplier holds) throws Exception {
        for (int tries = 0; !holds.getAsBoolean(); tries++) {
            if (tries == 600) throw new IllegalStateException("never: " + what);
            Thread.sleep(100);
        }
    }

    static void produce() {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(set, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < RECORDS; n++) producer.send(new ProducerRecord<>("t", "k" + n, "word" + n % WORDS));
        }
    }

    static Map<String, Long> counts(long each) throws Exception {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("group.id", "reader" + each);
        set.put("auto.offset.reset", "earliest");
        set.put("isolation.level", "read_committed");
        Map<String, Long> last = new TreeMap<>();
        try (KafkaConsumer<String, Long> consumer =
                 new KafkaConsumer<>(set, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of("counts"));
            for (int tries = 0; tries < 300; tries++) {
                for (ConsumerRecord<String, Long> one : consumer.poll(Duration.ofMillis(200)))
                    last.put(one.key(), one.value());
                if (last.size() == WORDS && last.values().stream().allMatch(count -> count == each)) return last;
            }
        }
        return last;
    }

    static StreamsGroupDescription describe(Admin admin) {
        try {
            return admin.describeStreamsGroups(List.of("app")).all().get().get("app");
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static int active(StreamsGroupDescription group) {
        return group.members().stream()
            .flatMap(member -> member.assignment().activeTasks().stream())
            .mapToInt(tasks -> tasks.partitions().size()).sum();
    }

    static boolean isShared(StreamsGroupDescription group) {
        return group.groupState().toString().equals("Stable") && active(group) == 6
            && group.members().stream().allMatch(member -> !member.assignment().activeTasks().isEmpty());
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            produce();
            KafkaStreams first = application("first", args[1]);
            System.out.println("counts " + counts(RECORDS / WORDS));
            System.out.println("tasks " + active(describe(admin)) + " of " + describe(admin).members().size());
            KafkaStreams second = application("second", args[1]);
            until("two members share", () -> describe(admin).members().size() == 2 && isShared(describe(admin)));
            System.out.println("shared by " + describe(admin).members().size());
            produce();
            System.out.println("counts " + counts(2 * RECORDS / WORDS));
            first.close(Duration.ofSeconds(20));
            until("one member has all", () -> describe(admin).members().size() == 1 && isShared(describe(admin)));
            System.out.println("left " + describe(admin).members().size());
            produce();
            System.out.println("counts " + counts(3 * RECORDS / WORDS));
            second.close(Duration.ofSeconds(20));
            until("empty", () -> describe(admin).groupState().toString().equals("Empty"));
            admin.deleteStreamsGroups(List.of("app")).all().get();
            System.out.println("deleted");
        }
        System.exit(0);
    }
}
