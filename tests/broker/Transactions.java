import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own producer through the same steps as the other peers of test_transactions_peers. */
public class Transactions {
    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("transactional.id", id);
        set.put("retry.backoff.ms", "10");
        return new KafkaProducer<>(set, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void write(KafkaProducer<byte[], byte[]> producer, String value) {
        for (int partition = 0; partition < 3; partition++)
            producer.send(new ProducerRecord<>("t", partition, null, (value + partition).getBytes()));
    }

    public static void main(String[] args) throws Exception {
        KafkaProducer<byte[], byte[]> one = producer(args[0], args[1]);
        one.initTransactions();
        for (String step : List.of("commit", "abort", "commit")) {
            one.beginTransaction();
            write(one, step);
            one.sendOffsetsToTransaction(
                Map.of(new TopicPartition("in", 0), new OffsetAndMetadata(step.equals("commit") ? 7 : 9)),
                new ConsumerGroupMetadata("g"));
            one.flush();
            if (step.equals("commit")) one.commitTransaction(); else one.abortTransaction();
        }
        one.beginTransaction();
        write(one, "zombie");
        one.flush();
        KafkaProducer<byte[], byte[]> two = producer(args[0], args[1]);
        two.initTransactions();
        try {
            one.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException error) {
            System.out.println("fenced");
        }
        one.close(Duration.ZERO);
        two.beginTransaction();
        write(two, "successor");
        two.commitTransaction();
        two.close();
        Properties set = new Properties();
        set.put("bootstrap.servers", args[0]);
        set.put("isolation.level", "read_committed");
        set.put("auto.offset.reset", "earliest");
        set.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(set, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition place = new TopicPartition("t", 0);
            consumer.assign(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end)
                for (var record : consumer.poll(Duration.ofSeconds(1))) System.out.println(new String(record.value()));
        }
    }
}
