// A walk through a cluster by kafka-go: administration, every codec, offsets, a group of two members, transactions' API.
// Each step is a line of JSON on stdout, without what differs from run to run, so that the same walk on two brokers can
// be compared line by line. Of an error of a broker it has the code.
//
//	walk BOOTSTRAP
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const topic = "walk-of-kafka-go"

var codecs = []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}

// say prints a step with what it returned, or with the error.
func say(step string, result any, err error) {
	if err != nil {
		result = "error: " + text(err)
	}
	line, failure := json.Marshal([]any{step, result})
	must(failure)
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func text(err error) string {
	var code kafka.Error
	var several kafka.WriteErrors
	switch {
	case err == nil:
		return ""
	case errors.As(err, &several):
		return text(several[0])
	case errors.As(err, &code):
		return fmt.Sprintf("%d %s", int(code), code.Title())
	}
	return err.Error()
}

func sorted(list []any) []any {
	sort.Slice(list, func(i, j int) bool { return fmt.Sprint(list[i]) < fmt.Sprint(list[j]) })
	return list
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	address := os.Args[1]
	client := &kafka.Client{Addr: kafka.TCP(address), Timeout: 10 * time.Second}
	administer(ctx, client)
	write(ctx, address)
	read(ctx, client, address)
	join(ctx, client, address)
	transact(ctx, client)
	end(ctx, client)
}

func administer(ctx context.Context, client *kafka.Client) {
	create := func(name string, partitions, replicas int, onlyValidate bool) {
		reply, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{ValidateOnly: onlyValidate, Topics: []kafka.TopicConfig{{
			Topic: name, NumPartitions: partitions, ReplicationFactor: replicas,
			// 31 years: the records are of 2023.
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "1000000000000"}},
		}}})
		if err == nil {
			err = reply.Errors[name]
		}
		say(fmt.Sprintf("create %s %d %d", name, partitions, replicas), nil, err)
	}
	create(topic, 4, 1, false)
	create(topic, 4, 1, false)
	create("growing-of-kafka-go", 3, 1, false)
	create("bad", 1, 9, false)
	create("a/b", 1, 1, false)
	create("other", 1, 1, true)
	more := func(count int32) {
		reply, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: "growing-of-kafka-go", Count: count}}})
		if err == nil {
			err = reply.Errors["growing-of-kafka-go"]
		}
		say(fmt.Sprintf("partitions %d", count), nil, err)
	}
	more(4)
	more(2)
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic, "missing-of-kafka-go"}})
	found := []any{}
	for _, one := range meta.Topics {
		found = append(found, []any{one.Name, one.Internal, len(one.Partitions), text(one.Error)})
	}
	say("metadata", sorted(found), err)
	say("cluster", []any{len(meta.Brokers), meta.ClusterID != ""}, nil)
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms", "cleanup.policy"}}}, IncludeSynonyms: true, IncludeDocumentation: true})
	found = []any{}
	for _, resource := range configs.Resources {
		for _, one := range resource.ConfigEntries {
			found = append(found, []any{one.ConfigName, one.ConfigValue, one.ReadOnly, one.IsSensitive, one.ConfigSource, len(one.ConfigSynonyms), one.ConfigType, one.ConfigDocumentation != ""})
		}
	}
	say("describe configs", sorted(found), err)
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "much", ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err == nil {
		err = altered.Resources[0].Error
	}
	say("bad config", nil, err)
	versions, err := client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	say("api versions", len(versions.ApiKeys) > 50, err)
	elected, err := client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{0}, Timeout: 5 * time.Second})
	if err == nil {
		err = elected.Error
	}
	say("elect leaders", nil, err)
	moves, err := client.ListPartitionReassignments(ctx, &kafka.ListPartitionReassignmentsRequest{Topics: map[string]kafka.ListPartitionReassignmentsRequestTopic{topic: {PartitionIndexes: []int{0}}}, Timeout: 5 * time.Second})
	say("reassignments", len(moves.Topics), err)
	acls, err := client.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{ResourceTypeFilter: kafka.ResourceTypeAny, ResourcePatternTypeFilter: kafka.PatternTypeAny, Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny}})
	if err == nil {
		err = acls.Error
	}
	say("describe acls", nil, err)
	scram, err := client.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{Upsertions: []kafka.UserScramCredentialsUpsertion{{Name: "walk", Mechanism: kafka.ScramMechanismSha512, Iterations: 4096, Salt: []byte("salt"), SaltedPassword: make([]byte, 64)}}})
	if err == nil && scram.Results[0].Error != nil {
		err = scram.Results[0].Error
	}
	say("alter scram", nil, err)
}

func write(ctx context.Context, address string) {
	for _, codec := range codecs {
		writer := &kafka.Writer{Addr: kafka.TCP(address), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 5 * time.Millisecond, Balancer: &kafka.Murmur2Balancer{}}
		messages := []kafka.Message{}
		for n := 0; n < 40; n++ {
			messages = append(messages, kafka.Message{Key: []byte(fmt.Sprintf("k%d", n)), Value: []byte(fmt.Sprintf("%s-%d", codec, n)), Headers: []kafka.Header{{Key: "h", Value: []byte("1")}}, Time: time.UnixMilli(1_700_000_000_000)})
		}
		say(fmt.Sprintf("write %s", codec), nil, writer.WriteMessages(ctx, messages...))
		must(writer.Close())
	}
	missing := &kafka.Writer{Addr: kafka.TCP(address), Topic: "missing-of-kafka-go", MaxAttempts: 1, RequiredAcks: kafka.RequireAll}
	say("write to a missing topic", nil, missing.WriteMessages(ctx, kafka.Message{Value: []byte("x")}))
	must(missing.Close())
	large := &kafka.Writer{Addr: kafka.TCP(address), Topic: topic, BatchBytes: 10 << 20, MaxAttempts: 1, RequiredAcks: kafka.RequireAll}
	say("too large", nil, large.WriteMessages(ctx, kafka.Message{Key: []byte("k"), Value: make([]byte, 2<<20)}))
	must(large.Close())
}

func read(ctx context.Context, client *kafka.Client, address string) {
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.LastOffsetOf(1), kafka.TimeOffsetOf(2, time.UnixMilli(1_600_000_000_000))}}})
	found := []any{}
	for _, one := range offsets.Topics[topic] {
		found = append(found, []any{one.Partition, one.FirstOffset, one.LastOffset, len(one.Offsets), text(one.Error)})
	}
	say("list offsets", sorted(found), err)
	for partition := 0; partition < 4; partition++ {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: topic, Partition: partition, MaxWait: 50 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20})
		lag, err := reader.ReadLag(ctx)
		must(err)
		got := []any{}
		for n := int64(0); n < lag; n++ {
			one, err := reader.ReadMessage(ctx)
			must(err)
			got = append(got, []any{one.Offset, string(one.Key), string(one.Value), len(one.Headers), one.HighWaterMark})
		}
		say(fmt.Sprintf("read partition %d", partition), got, nil)
		must(reader.Close())
	}
	fetched, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, Partition: 0, Offset: 1_000_000, MinBytes: 1, MaxBytes: 1000, MaxWait: time.Second})
	if err == nil {
		err = fetched.Error
	}
	say("fetch beyond the end", nil, err)
	conn, err := kafka.DialLeader(ctx, "tcp", address, topic, 0)
	must(err)
	first, last, err := conn.ReadOffsets()
	say("conn offsets", []any{first, last > 0}, err)
	partitions, err := conn.ReadPartitions()
	names := map[string]bool{}
	for _, one := range partitions {
		names[one.Topic] = true
	}
	say("conn partitions", names[topic], err)
	_, err = conn.Controller()
	say("conn controller", nil, err)
	must(conn.Close())
}

func join(ctx context.Context, client *kafka.Client, address string) {
	for _, balancer := range []kafka.GroupBalancer{kafka.RangeGroupBalancer{}, kafka.RoundRobinGroupBalancer{}} {
		group := "kafka-go-" + balancer.ProtocolName()
		member := func() *kafka.Reader {
			return kafka.NewReader(kafka.ReaderConfig{
				Brokers: []string{address}, GroupID: group, GroupTopics: []string{topic}, GroupBalancers: []kafka.GroupBalancer{balancer},
				HeartbeatInterval: 100 * time.Millisecond, SessionTimeout: 6 * time.Second, StartOffset: kafka.FirstOffset,
				MaxWait: 50 * time.Millisecond, RebalanceTimeout: 5 * time.Second,
			})
		}
		first, second := member(), member()
		got := make(chan kafka.Message, 1000)
		running, stop := context.WithCancel(ctx)
		for _, one := range []*kafka.Reader{first, second} {
			go func() {
				for {
					message, err := one.FetchMessage(running)
					if err != nil {
						return
					}
					if one.CommitMessages(running, message) == nil {
						got <- message
					}
				}
			}()
		}
		seen := map[string]bool{}
		for len(seen) < 200 {
			select {
			case one := <-got:
				seen[fmt.Sprint(one.Partition, one.Offset)] = true
			case <-ctx.Done():
				log.Fatalf("%s read only %d messages", group, len(seen))
			}
		}
		say(group+" read", len(seen), nil)
		described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		must(err)
		for _, one := range described.Groups {
			say("describe "+group, []any{one.GroupID, text(one.Error)}, nil) // the second member may still join
		}
		_, err = client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		say("delete while it runs", nil, err)
		stop()
		must(first.Close())
		must(second.Close())
		committed, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2, 3}}})
		sum := int64(0)
		for _, one := range committed.Topics[topic] {
			sum += one.CommittedOffset
		}
		say("committed by "+group, sum, err)
		deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group, "nobody"}})
		say("delete "+group, []any{text(deleted.Errors[group]), text(deleted.Errors["nobody"])}, err)
	}
	listed, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	groups := []any{}
	for _, one := range listed.Groups {
		if strings.HasPrefix(one.GroupID, "kafka-go-") {
			groups = append(groups, one.GroupID)
		}
	}
	say("list groups", sorted(groups), err) // none is left
}

// isWaiting tells whether a coordinator is not ready yet.
func isWaiting(err error) bool {
	for _, one := range []error{kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup, kafka.GroupLoadInProgress} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func transact(ctx context.Context, client *kafka.Client) {
	// A coordinator that is just made is not available yet.
	var producer *kafka.InitProducerIDResponse
	var err error
	for {
		_, _ = client.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{Key: "go-walker", KeyType: kafka.CoordinatorKeyTypeTransaction})
		producer, err = client.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: "go-walker", TransactionTimeoutMs: 10_000, ProducerID: -1, ProducerEpoch: -1})
		if err == nil {
			err = producer.Error
		}
		if !isWaiting(err) || ctx.Err() != nil {
			break
		}
	}
	say("init producer", producer.Producer.ProducerEpoch, err)
	added, err := client.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{TransactionalID: "go-walker", ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch, Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}}})
	results := []any{}
	for _, one := range added.Topics[topic] {
		results = append(results, []any{one.Partition, text(one.Error)})
	}
	say("add partitions", results, err)
	offsets, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{TransactionalID: "go-walker", ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch, GroupID: "kafka-go-offsets"})
	if err == nil {
		err = offsets.Error
	}
	say("add offsets", nil, err)
	ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: "go-walker", ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch, Committed: true})
	if err == nil {
		err = ended.Error
	}
	say("end", nil, err)
	again, err := client.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: "go-walker", ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch + 5, Committed: true})
	if err == nil {
		err = again.Error
	}
	say("end by another epoch", nil, err)
}

func end(ctx context.Context, client *kafka.Client) {
	for range 2 {
		deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		if err == nil {
			err = deleted.Errors[topic]
		}
		say("delete topic", nil, err)
	}
}
