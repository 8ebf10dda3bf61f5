// A walk through a cluster by Sarama: administration, every codec, offsets, a group of two members, transactions.
// Each step is a line of JSON on stdout, without what differs from run to run (ids, times, addresses), so that the same
// walk on two brokers can be compared line by line. An error is Kafka's text for its code; what a broker adds to it differs.
//
//	walk BOOTSTRAP
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	topic    = "walk-of-sarama"
	patience = 10 * time.Second
)

var codecs = []sarama.CompressionCodec{
	sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
}

// say prints a step with what it returned, or with the error.
func say(step string, result any, err error) {
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), " - ")
		result = "error: " + text
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

func config(version sarama.KafkaVersion) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "walk"
	c.Version = version
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	return c
}

func main() {
	sarama.Logger = log.Default() // on stderr, for a walk that fails
	brokers := strings.Split(os.Args[1], ",")
	version := sarama.V4_0_0_0
	admin, err := sarama.NewClusterAdmin(brokers, config(version))
	must(err)
	defer admin.Close()
	administer(admin)
	write(brokers, version)
	readOffsets(brokers, version)
	join(brokers, version, admin)
	transact(brokers, version)
	end(brokers, version, admin)
}

func administer(admin sarama.ClusterAdmin) {
	retention := "1000000000000" // 31 years: the records are of 2023
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	say("create topic", nil, admin.CreateTopic(topic, detail, false))
	say("create it again", nil, admin.CreateTopic(topic, detail, false))
	bad := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 9}
	say("too many replicas", nil, admin.CreateTopic("bad", bad, false))
	say("bad name", nil, admin.CreateTopic("a/b", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	say("only validated", nil, admin.CreateTopic("other", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, true))
	say("more partitions", nil, admin.CreatePartitions(topic, 4, nil, false))
	say("fewer partitions", nil, admin.CreatePartitions(topic, 2, nil, false))
	topics, err := admin.ListTopics()
	for until := time.Now().Add(patience); err == nil && topics[topic].NumPartitions < 4 && time.Now().Before(until); {
		topics, err = admin.ListTopics() // a real broker learns of it by the metadata log
	}
	say("list topics", map[string]any{"partitions": topics[topic].NumPartitions, "retention.ms": topics[topic].ConfigEntries["retention.ms"]}, err)
	described, err := admin.DescribeTopics([]string{topic, "missing-of-sarama"})
	found := []any{}
	for _, one := range described {
		found = append(found, []any{one.Name, one.Err.Error(), len(one.Partitions), one.IsInternal})
	}
	say("describe topics", found, err)
	longer := "2000000000000"
	say("alter config", nil, admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &longer}, false))
	say("alter increments", nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &[]string{"compact"}[0]},
	}, false))
	nonsense := "much"
	say("bad config", nil, admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &nonsense}, false))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms", "cleanup.policy"}})
	configs := []any{}
	for _, one := range entries {
		configs = append(configs, []any{one.Name, one.Value, one.ReadOnly, one.Default, one.Source.String(), one.Sensitive})
	}
	sortAny(configs)
	say("describe config", configs, err)
	say("alter back", nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationDelete},
	}, false))
	brokers, controller, err := admin.DescribeCluster()
	say("describe cluster", []any{len(brokers) > 0, controller >= 0}, err)
	logs, err := admin.DescribeLogDirs([]int32{brokers[0].ID()})
	say("log dirs", len(logs) > 0, err)
	acl := sarama.Acl{Principal: "User:walk", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}
	say("create acl", nil, admin.CreateACL(sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}, acl))
	acls, err := admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny, Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny})
	say("list acls", len(acls), err)
	moves, err := admin.ListPartitionReassignments(topic, []int32{0})
	say("reassignments", len(moves), err)
	elected, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	elections := []any{}
	for name, partitions := range elected {
		for partition, result := range partitions {
			elections = append(elections, []any{name, partition, result.ErrorCode.Error()})
		}
	}
	say("elect leaders", elections, err)
	user := "walk"
	quota := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: user}}
	say("alter quota", nil, admin.AlterClientQuotas(quota, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}, false))
	filter := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: user}}
	quotas, err := admin.DescribeClientQuotas(filter, true)
	for until := time.Now().Add(patience); err == nil && len(quotas) == 0 && time.Now().Before(until); {
		quotas, err = admin.DescribeClientQuotas(filter, true)
	}
	say("describe quota", quotas, err)
	scram, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 4096, Salt: []byte("salt"), Password: []byte("secret")}})
	results := []any{}
	for _, one := range scram {
		results = append(results, []any{one.User, one.ErrorCode.Error()})
	}
	say("upsert scram", results, err)
	users, err := admin.DescribeUserScramCredentials([]string{user, "nobody"})
	known := []any{}
	for _, one := range users {
		known = append(known, []any{one.User, one.ErrorCode.Error(), len(one.CredentialInfos)})
	}
	sortAny(known)
	say("describe scram", known, err)
}

func sortAny(list []any) {
	sort.Slice(list, func(i, j int) bool { return fmt.Sprint(list[i]) < fmt.Sprint(list[j]) })
}

func write(brokers []string, version sarama.KafkaVersion) {
	for _, codec := range codecs {
		for _, idempotent := range []bool{false, true} {
			c := config(version)
			c.Producer.Compression = codec
			c.Producer.Idempotent = idempotent
			if idempotent {
				c.Net.MaxOpenRequests = 1
			}
			producer, err := sarama.NewSyncProducer(brokers, c)
			must(err)
			offsets := []int64{}
			var failure error
			for partition := int32(0); partition < 4; partition++ {
				_, offset, err := producer.SendMessage(message(partition, string(codec.String())))
				if err != nil {
					failure = err
				}
				offsets = append(offsets, offset)
			}
			many := []*sarama.ProducerMessage{}
			for n := 0; n < 20; n++ {
				many = append(many, message(int32(n%4), fmt.Sprint(n)))
			}
			if err := producer.SendMessages(many); err != nil {
				failure = err
			}
			say(fmt.Sprintf("write %s idempotent=%t", codec, idempotent), offsets, failure)
			must(producer.Close())
		}
	}
	c := config(version)
	c.Producer.MaxMessageBytes = 10 << 20
	c.Producer.Retry.Max = 0
	producer, err := sarama.NewSyncProducer(brokers, c)
	must(err)
	large := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(make([]byte, 2<<20))}
	_, _, err = producer.SendMessage(large)
	say("too large", nil, err)
	must(producer.Close())
}

func message(partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Partition: partition, Key: sarama.StringEncoder("k" + value), Value: sarama.StringEncoder(value),
		Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(value)}}, Timestamp: time.UnixMilli(1_700_000_000_000),
	}
}

func readOffsets(brokers []string, version sarama.KafkaVersion) {
	client, err := sarama.NewClient(brokers, config(version))
	must(err)
	defer client.Close()
	for _, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, 1_600_000_000_000, 1_800_000_000_000} {
		offset, err := client.GetOffset(topic, 0, at)
		say(fmt.Sprintf("offset at %d", at), offset, err)
	}
	_, err = client.GetOffset("missing-of-sarama", 0, sarama.OffsetNewest)
	say("offset of a missing topic", nil, err)
	consumer, err := sarama.NewConsumerFromClient(client)
	must(err)
	reader, err := consumer.ConsumePartition(topic, 1, sarama.OffsetOldest)
	must(err)
	got := []any{}
	for n := 0; n < 60; n++ {
		one := <-reader.Messages()
		got = append(got, []any{one.Offset, string(one.Key), string(one.Value), string(one.Headers[0].Value), one.Timestamp.UnixMilli()})
	}
	say("read a partition", got, nil)
	must(reader.Close())
	_, err = consumer.ConsumePartition(topic, 1, 1_000_000)
	say("read beyond the end", nil, err)
	must(consumer.Close())
}

// member counts what it reads, and marks it.
type member struct {
	lock    sync.Mutex
	owned   int
	read    int
	enough  chan struct{}
	changed func()
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	m.owned = len(s.Claims()[topic])
	m.lock.Unlock()
	m.changed()
	return nil
}
func (m *member) Cleanup(s sarama.ConsumerGroupSession) error { s.Commit(); return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(one, "")
			m.lock.Lock()
			m.read++
			m.lock.Unlock()
			m.changed()
		case <-s.Context().Done():
			return nil
		}
	}
}

func join(brokers []string, version sarama.KafkaVersion, admin sarama.ClusterAdmin) {
	for _, strategy := range []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategySticky()} {
		group := "sarama-" + strategy.Name()
		c := config(version)
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
		news := make(chan struct{}, 10_000)
		changed := func() { news <- struct{}{} }
		members := []*member{{changed: changed}, {changed: changed}}
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		groups := []sarama.ConsumerGroup{}
		for _, one := range members {
			joined, err := sarama.NewConsumerGroup(brokers, group, c)
			must(err)
			groups = append(groups, joined)
			running.Add(1)
			go func() {
				defer running.Done()
				for ctx.Err() == nil {
					// It ends with each rebalance, and with an error where the coordinator is busy: join again.
					if err := joined.Consume(ctx, []string{topic}, one); err != nil && ctx.Err() == nil {
						log.Printf("group %s: %v", group, err)
						time.Sleep(100 * time.Millisecond)
					}
				}
			}()
		}
		deadline := time.After(30 * time.Second)
		settled := func() bool {
			a, b := members[0], members[1]
			a.lock.Lock()
			b.lock.Lock()
			defer a.lock.Unlock()
			defer b.lock.Unlock()
			return a.owned == 2 && b.owned == 2 && a.read+b.read >= 240
		}
		for !settled() {
			select {
			case <-news:
			case <-deadline:
				log.Fatalf("group %s: %d and %d partitions, %d and %d records", group, members[0].owned, members[1].owned, members[0].read, members[1].read)
			}
		}
		say(group+" reads", []int{members[0].owned, members[1].owned}, nil)
		described, err := admin.DescribeConsumerGroups([]string{group, "nobody"})
		found := []any{}
		for _, one := range described {
			found = append(found, []any{one.GroupId, one.State, one.Protocol, one.ProtocolType, len(one.Members), one.Err.Error()})
		}
		sortAny(found)
		say("describe "+group, found, err)
		say("delete while it runs", nil, admin.DeleteConsumerGroup(group))
		cancel()
		running.Wait()
		for _, one := range groups {
			must(one.Close())
		}
		offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3, 9}})
		committed := []any{}
		for partition, one := range offsets.Blocks[topic] {
			committed = append(committed, []any{partition, one.Offset, one.Err.Error()})
		}
		sortAny(committed)
		say("committed by "+group, committed, err)
		say("delete an offset", nil, admin.DeleteConsumerGroupOffset(group, topic, 0))
		listed, err := admin.ListConsumerGroups()
		say("listed "+group, listed[group], err)
		say("delete "+group, nil, admin.DeleteConsumerGroup(group))
		say("delete it again", nil, admin.DeleteConsumerGroup(group))
	}
}

func transact(brokers []string, version sarama.KafkaVersion) {
	c := config(version)
	c.Producer.Idempotent = true
	c.Producer.Transaction.ID = "walker"
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, c)
	must(err)
	other, err := sarama.NewSyncProducer(brokers, c)
	must(err)
	say("begin when fenced", nil, func() error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		_, _, err := producer.SendMessage(message(2, "fenced"))
		return err
	}())
	producer.Close()
	for _, commits := range []bool{false, true} {
		must(other.BeginTxn())
		_, _, err := other.SendMessage(message(2, fmt.Sprintf("committed=%t", commits)))
		must(err)
		meta := ""
		say("offsets in a transaction", nil, other.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 3, Offset: 7, Metadata: &meta}}}, "sarama-offsets"))
		if commits {
			say("commit", nil, other.CommitTxn())
		} else {
			say("abort", nil, other.AbortTxn())
		}
	}
	must(other.Close())
	c = config(version)
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(brokers, c)
	must(err)
	reader, err := consumer.ConsumePartition(topic, 2, 60)
	must(err)
	one := <-reader.Messages()
	say("read committed", []any{one.Offset, string(one.Value)}, nil)
	must(reader.Close())
	must(consumer.Close())
}

func end(brokers []string, version sarama.KafkaVersion, admin sarama.ClusterAdmin) {
	offsets, err := admin.ListConsumerGroupOffsets("sarama-offsets", map[string][]int32{topic: {3}})
	say("offset of the transaction", offsets.GetBlock(topic, 3).Offset, err)
	say("delete records", nil, admin.DeleteRecords(topic, map[int32]int64{0: 10, 1: 5}))
	say("delete too many records", nil, admin.DeleteRecords(topic, map[int32]int64{0: 1_000_000}))
	client, err := sarama.NewClient(brokers, config(version))
	must(err)
	offset, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	say("first offset", offset, err)
	say("delete topic", nil, admin.DeleteTopic(topic))
	say("delete it again", nil, admin.DeleteTopic(topic))
	must(client.Close())
}
