package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Franz is franz-go.
type Franz struct{}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var franzTypes = map[int8]string{-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

func franz(asked Asked, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(asked.Settings.Bootstrap))...)
}

func franzAdmin(asked Asked) (*kadm.Client, error) {
	client, err := franz(asked)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// Produce tells no times: those of the library's records stay what the producer has given.
func (Franz) Produce(asked Asked) ([]any, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(franzCodecs[asked.Settings.Codec]),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchMaxBytes(16_384),
	}
	if !asked.Settings.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := franz(asked, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, one := range asked.Records {
		record := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Key: one.Key, Value: one.Value}
		if one.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, each := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: each.Key, Value: each.Value})
		}
		records = append(records, record)
	}
	sends := make([]any, len(records))
	for number, record := range records {
		client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			if err != nil {
				sends[number] = err.Error()
			} else {
				sends[number] = []any{sent.Offset, nil}
			}
		})
	}
	return sends, client.Flush(context.Background())
}

func franzRow(record *kgo.Record) Row {
	headers := []Header{}
	for _, each := range record.Headers {
		headers = append(headers, Header{each.Key, each.Value})
	}
	kind := franzTypes[record.Attrs.TimestampType()]
	return row(record.Partition, record.Offset, record.Key, record.Value, record.Timestamp, kind, headers)
}

func (library Franz) Consume(asked Asked) ([]Row, error) {
	_, end, err := library.Ends(asked)
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: kgo.NewOffset().AtStart()}}
	client, err := franz(asked, kgo.ConsumePartitions(from), kgo.FetchMaxPartitionBytes(100_000), kgo.FetchMaxWait(10*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	rows := []Row{}
	for position := int64(0); position < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("at %d of %d: %w", position, end, err)
		}
		for _, record := range fetches.Records() {
			rows, position = append(rows, franzRow(record)), record.Offset+1
		}
	}
	return rows, nil
}

func (Franz) Ends(asked Asked) (int64, int64, error) {
	admin, err := franzAdmin(asked)
	if err != nil {
		return 0, 0, err
	}
	defer admin.Close()
	begins, err := admin.ListStartOffsets(context.Background(), asked.Topic)
	ends, failed := admin.ListEndOffsets(context.Background(), asked.Topic)
	begin, _ := begins.Lookup(asked.Topic, asked.Partition)
	end, _ := ends.Lookup(asked.Topic, asked.Partition)
	return begin.Offset, end.Offset, errors.Join(err, failed, begins.Error(), ends.Error())
}

// Times gets the end of the partition, with no time, where there is no record.
func (Franz) Times(asked Asked) ([]any, error) {
	admin, err := franzAdmin(asked)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	answers := []any{}
	for _, target := range asked.Targets {
		listed, err := admin.ListOffsetsAfterMilli(context.Background(), target, asked.Topic)
		if err = errors.Join(err, listed.Error()); err != nil {
			return nil, err
		}
		if found, _ := listed.Lookup(asked.Topic, asked.Partition); found.Timestamp < 0 {
			answers = append(answers, nil)
		} else {
			answers = append(answers, []int64{found.Offset, found.Timestamp})
		}
	}
	return answers, nil
}

func (Franz) Committed(asked Asked) ([]any, error) {
	admin, err := franzAdmin(asked)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	fetched, err := admin.FetchOffsets(context.Background(), asked.Settings.Group)
	offsets := []any{}
	for partition := range asked.Partitions {
		if found, there := fetched.Lookup(asked.Topic, partition); there {
			offsets = append(offsets, found.At)
		} else {
			offsets = append(offsets, nil)
		}
	}
	return offsets, errors.Join(err, fetched.Error())
}

func (Franz) BeginTransaction(asked Asked) error {
	client, err := franz(asked, kgo.TransactionalID(asked.Settings.Transactional))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, _, err = client.ProducerID(context.Background()); err != nil {
		return err
	}
	return client.BeginTransaction()
}

func count(partitions map[string][]int32) int {
	sum := 0
	for _, each := range partitions {
		sum += len(each)
	}
	return sum
}

func (Franz) Join(asked Asked, member *Member) error {
	lost := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		member.Assigned(func(now int) int { return now - count(partitions) })
	}
	client, err := franz(asked, kgo.ConsumerGroup(asked.Settings.Group), kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.SessionTimeout(10*time.Second), kgo.FetchMaxWait(10*time.Millisecond),
		kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			member.Assigned(func(now int) int { return now + count(partitions) })
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-member.group.over
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		for _, record := range fetches.Records() {
			member.Add(franzRow(record))
		}
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		return err
	}
	member.Committed()
	return nil
}
