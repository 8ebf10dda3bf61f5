import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import kafka.admin.TopicCommand;

/** Runs kafka-topics of an old broker in one JVM: a line is its arguments, with tabs between. */
public class OldTopics {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("===")) {
                System.out.println(line);
            } else {
                TopicCommand.main(line.split("\t", -1));
            }
            System.out.flush();
        }
    }
}
