import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/**
 * A plug-in of a broker that writes each push of a client as one line to the file that the config pushed.metrics.file
 * names: client id, instance id, whether it is the last push, content type, metrics in base64.
 *
 * As a program it runs a client of each kind, on the broker and the topic that its arguments name, for two seconds after
 * each has got records.
 */
public class PushedMetrics implements MetricsReporter, ClientTelemetry {
    private String file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = (String) configs.get("pushed.metrics.file");
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data().duplicate();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            write(String.join(" ", context.clientId(), payload.clientInstanceId().toString(),
                String.valueOf(payload.isTerminating()), payload.contentType(),
                Base64.getEncoder().encodeToString(bytes)));
        };
    }

    private synchronized void write(String line) {
        try (PrintWriter writer = new PrintWriter(new FileWriter(file, true))) {
            writer.println(line);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    private static Properties config(String bootstrap, String clientId) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", clientId);
        config.put("group.id", clientId);
        config.put("enable.metrics.push", "true"); // an Admin's default is false
        return config;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        StringSerializer serializer = new StringSerializer();
        StringDeserializer deserializer = new StringDeserializer();
        try (Admin admin = Admin.create(config(bootstrap, "java-admin"));
             KafkaProducer<String, String> producer =
                 new KafkaProducer<>(config(bootstrap, "java-producer"), serializer, serializer);
             KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config(bootstrap, "java-consumer"), deserializer, deserializer);
             KafkaShareConsumer<String, String> share =
                 new KafkaShareConsumer<>(config(bootstrap, "java-share"), deserializer, deserializer)) {
            consumer.subscribe(List.of(topic));
            share.subscribe(List.of(topic));
            int consumed = 0;
            int shared = 0;
            long end = System.nanoTime() + 2_000_000_000L;
            while (System.nanoTime() < end) {
                admin.describeCluster().nodes().get();
                producer.send(new ProducerRecord<>(topic, "x")).get();
                consumed += consumer.poll(Duration.ofMillis(50)).count();
                consumer.commitSync();
                shared += share.poll(Duration.ofMillis(50)).count();
                if (consumed == 0 || shared == 0) {
                    end = System.nanoTime() + 2_000_000_000L;
                }
            }
        }
    }
}
