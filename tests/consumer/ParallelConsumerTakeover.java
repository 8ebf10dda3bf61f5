import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Processes a topic with Confluent's Parallel Consumer as member of a group, then prints the offsets that it processed.
 *
 * Arguments: bootstrap, topic, group, how many records to process, and an offset that is never completed, or -1.
 */
public class ParallelConsumerTakeover {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[2]);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.UNORDERED)
                .maxConcurrency(8)
                .commitMode(CommitMode.PERIODIC_CONSUMER_SYNC)
                .commitInterval(Duration.ofMillis(100))
                .consumer(consumer)
                .build());
        processor.subscribe(List.of(args[1]));
        long stuck = Long.parseLong(args[4]);
        CountDownLatch left = new CountDownLatch(Integer.parseInt(args[3]));
        Set<Long> done = new ConcurrentSkipListSet<>();
        processor.poll(context -> {
            long offset = context.getSingleConsumerRecord().offset();
            if (offset == stuck)
                throw new IllegalStateException("this record is never completed");
            done.add(offset);
            left.countDown();
        });
        boolean complete = left.await(60, TimeUnit.SECONDS);
        TimeUnit.MILLISECONDS.sleep(500); // a commit interval: a record too many would come now
        processor.closeDontDrainFirst();
        System.out.println(complete ? "done " + done : "timed out " + done);
        System.exit(0);
    }
}
