// A member by franz-go that prints the events of a verifiable consumer.
//
//	member '{"bootstrap": "...", "topic": "...", "group": "...", "protocol": "classic", "assignor": "range",
//	          "instance": "", "session_ms": 10000}'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kwire.test/franzgo/program"
)

type settings struct {
	Bootstrap string `json:"bootstrap"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Protocol  string `json:"protocol"`
	Assignor  string `json:"assignor"`
	Instance  string `json:"instance"`
	SessionMs int    `json:"session_ms"`
}

type partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    *int64 `json:"offset,omitempty"`
	Count     int    `json:"count,omitempty"`
	MinOffset *int64 `json:"minOffset,omitempty"`
	MaxOffset *int64 `json:"maxOffset,omitempty"`
}

func write(name string, fields map[string]any) {
	event := map[string]any{"timestamp": time.Now().UnixMilli(), "name": name}
	for key, value := range fields {
		event[key] = value
	}
	line, err := json.Marshal(event)
	program.Fail(err)
	fmt.Println(string(line))
}

func rebalanced(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		partitions := []partition{}
		for topic, numbers := range topics {
			for _, number := range numbers {
				partitions = append(partitions, partition{Topic: topic, Partition: number})
			}
		}
		write(name, map[string]any{"partitions": partitions})
	}
}

// read writes what a poll returned, commits it, and writes the result.
func read(client *kgo.Client, fetches kgo.Fetches) {
	var consumed, committed []partition
	var records []*kgo.Record
	fetches.EachPartition(func(one kgo.FetchTopicPartition) {
		if len(one.Records) == 0 {
			return
		}
		last := one.Records[len(one.Records)-1]
		next := last.Offset + 1
		consumed = append(consumed, partition{
			Topic: one.Topic, Partition: one.Partition, Count: len(one.Records),
			MinOffset: &one.Records[0].Offset, MaxOffset: &last.Offset,
		})
		committed = append(committed, partition{Topic: one.Topic, Partition: one.Partition, Offset: &next})
		records = append(records, one.Records...)
	})
	if len(records) == 0 {
		return
	}
	write("records_consumed", map[string]any{"count": len(records), "partitions": consumed})
	context, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result := map[string]any{"offsets": committed, "success": true}
	if err := client.CommitRecords(context, records...); err != nil {
		result["success"], result["error"] = false, err.Error()
	}
	write("offsets_committed", result)
}

func main() {
	var chosen settings
	program.Read(&chosen)
	lifetime := program.WithProtocol(context.Background(), chosen.Protocol)
	balancer := kgo.RangeBalancer()
	if chosen.Assignor == "cooperative-sticky" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.WithContext(lifetime),
		kgo.SeedBrokers(strings.Split(chosen.Bootstrap, ",")...),
		kgo.ConsumerGroup(chosen.Group),
		kgo.ConsumeTopics(chosen.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(chosen.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(rebalanced("partitions_assigned")),
		kgo.OnPartitionsRevoked(rebalanced("partitions_revoked")),
		kgo.OnPartitionsLost(rebalanced("partitions_revoked")),
	}
	if chosen.Instance != "" {
		options = append(options, kgo.InstanceID(chosen.Instance))
	}
	client, err := kgo.NewClient(options...)
	program.Fail(err)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	write("startup_complete", nil)
	for stopping.Err() == nil {
		polling, cancel := context.WithTimeout(stopping, 200*time.Millisecond)
		fetches := client.PollRecords(polling, 500)
		cancel()
		read(client, fetches)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	write("shutdown_complete", nil)
}
