// A producer and a consumer by franz-go. Records are lines "key\tvalue": on stdin to write, on stdout as they are read.
//
//	peer '{"bootstrap": "...", "topic": "...", "role": "write", "codec": "zstd", "idempotent": true, "partition": 0,
//	       "transaction": "", "batch": 1000}'
//	peer '{"bootstrap": "...", "topic": "...", "role": "read", "count": 100, "group": "", "protocol": "classic"}'
//
// Without "partition" keys choose it; without "group" all partitions are read from their start. `batch` records make a
// transaction. A member commits what it has read, and leaves.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kwire.test/franzgo/program"
)

type settings struct {
	Bootstrap   string `json:"bootstrap"`
	Topic       string `json:"topic"`
	Role        string `json:"role"`
	Codec       string `json:"codec"`
	Idempotent  bool   `json:"idempotent"`
	Partition   *int32 `json:"partition"`
	Transaction string `json:"transaction"`
	Batch       int    `json:"batch"`
	Count       int    `json:"count"`
	Group       string `json:"group"`
	Protocol    string `json:"protocol"`
}

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// lines reads the records of stdin.
func lines(chosen settings) []*kgo.Record {
	var records []*kgo.Record
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		key, value, _ := bytes.Cut(scanner.Bytes(), []byte("\t"))
		record := &kgo.Record{Topic: chosen.Topic, Key: bytes.Clone(key), Value: bytes.Clone(value)}
		if chosen.Partition != nil {
			record.Partition = *chosen.Partition
		}
		records = append(records, record)
	}
	program.Fail(scanner.Err())
	return records
}

func write(lifetime context.Context, chosen settings) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(chosen.Bootstrap, ",")...),
		kgo.ProducerBatchCompression(codecs[chosen.Codec]),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if chosen.Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if !chosen.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if chosen.Transaction != "" {
		options = append(options, kgo.TransactionalID(chosen.Transaction))
	}
	client, err := kgo.NewClient(options...)
	program.Fail(err)
	defer client.Close()
	records := lines(chosen)
	if chosen.Transaction == "" {
		program.Fail(client.ProduceSync(lifetime, records...).FirstErr())
		return
	}
	for start := 0; start < len(records); start += chosen.Batch {
		program.Fail(client.BeginTransaction())
		few := records[start:min(start+chosen.Batch, len(records))]
		program.Fail(client.ProduceSync(lifetime, few...).FirstErr())
		program.Fail(client.EndTransaction(lifetime, kgo.TryCommit))
	}
}

func read(lifetime context.Context, chosen settings) {
	lifetime = program.WithProtocol(lifetime, chosen.Protocol)
	options := []kgo.Opt{
		kgo.WithContext(lifetime),
		kgo.SeedBrokers(strings.Split(chosen.Bootstrap, ",")...),
		kgo.ConsumeTopics(chosen.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
	if chosen.Group != "" {
		options = append(options, kgo.ConsumerGroup(chosen.Group), kgo.DisableAutoCommit())
	}
	client, err := kgo.NewClient(options...)
	program.Fail(err)
	out := bufio.NewWriter(os.Stdout)
	for found := 0; found < chosen.Count; {
		fetches := client.PollFetches(lifetime)
		program.Fail(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			found++
			fmt.Fprintf(out, "%s\t%s\n", record.Key, record.Value)
		})
	}
	program.Fail(out.Flush())
	if chosen.Group != "" {
		program.Fail(client.CommitUncommittedOffsets(lifetime))
	}
	client.Close()
}

func main() {
	chosen := settings{Batch: 1000}
	program.Read(&chosen)
	lifetime, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if chosen.Role == "write" {
		write(lifetime, chosen)
	} else {
		read(lifetime, chosen)
	}
}
