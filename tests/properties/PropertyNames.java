import java.util.Scanner;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Print the names of the properties of Kafka's clients, a line each, then END. */
public class PropertyNames {
    public static void main(String[] arguments) {
        new Scanner(System.in).nextLine();
        TreeSet<String> names = new TreeSet<>(ProducerConfig.configNames());
        names.addAll(ConsumerConfig.configNames());
        names.addAll(AdminClientConfig.configNames());
        names.forEach(System.out::println);
        System.out.println("===");
    }
}
