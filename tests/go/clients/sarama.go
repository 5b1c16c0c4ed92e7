package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Sarama is IBM's. Its requests are of the newest release that it knows.
type Sarama struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 10 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	return config
}

func idempotent(config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
}

func saramaClient(asked Asked) (sarama.Client, error) {
	return sarama.NewClient([]string{asked.Settings.Bootstrap}, saramaConfig())
}

// Produce takes the time from this clock where there is none, as the library would, which does not tell it.
func (Sarama) Produce(asked Asked) ([]any, error) {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[asked.Settings.Codec]
	config.Producer.MaxMessageBytes = 16_384
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Retry.Max = 100
	config.Producer.Retry.Backoff = 20 * time.Millisecond
	if asked.Settings.Idempotent {
		idempotent(config)
	}
	producer, err := sarama.NewAsyncProducer([]string{asked.Settings.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	sends := make([]any, len(asked.Records))
	var answers, ends sync.WaitGroup
	answers.Add(len(sends))
	ends.Go(func() {
		for sent := range producer.Successes() {
			sends[sent.Metadata.(int)] = []int64{sent.Offset, sent.Timestamp.UnixMilli()}
			answers.Done()
		}
	})
	ends.Go(func() {
		for failed := range producer.Errors() {
			sends[failed.Msg.Metadata.(int)] = failed.Err.Error()
			answers.Done()
		}
	})
	for number, one := range asked.Records {
		message := &sarama.ProducerMessage{Topic: asked.Topic, Partition: asked.Partition, Metadata: number, Timestamp: time.Now()}
		if one.Key != nil {
			message.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			message.Value = sarama.ByteEncoder(one.Value)
		}
		if one.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, each := range one.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(each.Key), Value: each.Value})
		}
		producer.Input() <- message
	}
	answers.Wait() // a producer that is being closed sends nothing again
	producer.AsyncClose()
	ends.Wait()
	return sends, nil
}

func saramaRow(message *sarama.ConsumerMessage) Row {
	headers := []Header{}
	for _, each := range message.Headers {
		headers = append(headers, Header{string(each.Key), each.Value})
	}
	return row(message.Partition, message.Offset, message.Key, message.Value, message.Timestamp, nil, headers)
}

func (library Sarama) Consume(asked Asked) ([]Row, error) {
	_, end, err := library.Ends(asked)
	if err != nil {
		return nil, err
	}
	config := saramaConfig()
	config.Consumer.Fetch.Default = 100_000
	consumer, err := sarama.NewConsumer([]string{asked.Settings.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(asked.Topic, asked.Partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.AsyncClose()
	rows := []Row{}
	late := time.After(most)
	for position := int64(0); position < end; {
		select {
		case message := <-partition.Messages():
			rows, position = append(rows, saramaRow(message)), message.Offset+1
		case err := <-partition.Errors():
			return nil, err
		case <-late:
			return nil, errors.New("no end")
		}
	}
	return rows, nil
}

func (Sarama) Ends(asked Asked) (int64, int64, error) {
	client, err := saramaClient(asked)
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	begin, err := client.GetOffset(asked.Topic, asked.Partition, sarama.OffsetOldest)
	end, failed := client.GetOffset(asked.Topic, asked.Partition, sarama.OffsetNewest)
	return begin, end, errors.Join(err, failed)
}

// Times has no times, only offsets.
func (Sarama) Times(asked Asked) ([]any, error) {
	client, err := saramaClient(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	answers := []any{}
	for _, target := range asked.Targets {
		offset, err := client.GetOffset(asked.Topic, asked.Partition, target)
		if err != nil {
			return nil, err
		}
		if offset < 0 {
			answers = append(answers, nil)
		} else {
			answers = append(answers, []any{offset, nil})
		}
	}
	return answers, nil
}

func (Sarama) Committed(asked Asked) ([]any, error) {
	admin, err := sarama.NewClusterAdmin([]string{asked.Settings.Bootstrap}, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	partitions := []int32{}
	for partition := range asked.Partitions {
		partitions = append(partitions, partition)
	}
	fetched, err := admin.ListConsumerGroupOffsets(asked.Settings.Group, map[string][]int32{asked.Topic: partitions})
	if err != nil {
		return nil, err
	}
	offsets := []any{}
	for _, partition := range partitions {
		if found := fetched.GetBlock(asked.Topic, partition); found != nil && found.Offset >= 0 {
			offsets = append(offsets, found.Offset)
		} else {
			offsets = append(offsets, nil)
		}
	}
	return offsets, nil
}

func (Sarama) BeginTransaction(asked Asked) error {
	config := saramaConfig()
	idempotent(config)
	config.Producer.Transaction.ID = asked.Settings.Transactional
	producer, err := sarama.NewAsyncProducer([]string{asked.Settings.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.BeginTxn()
}

// saramaMember is what the library calls for each round of the group.
type saramaMember struct{ *Member }

func (m saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.Assigned(func(int) int { return count(session.Claims()) })
	return nil
}

func (m saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.Assigned(func(int) int { return 0 })
	return nil
}

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			session.MarkMessage(message, "")
			m.Add(saramaRow(message))
		case <-m.group.over:
			return nil
		case <-session.Context().Done():
			return nil
		}
	}
}

func (Sarama) Join(asked Asked, member *Member) error {
	config := saramaConfig()
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	consumer, err := sarama.NewConsumerGroup([]string{asked.Settings.Bootstrap}, asked.Settings.Group, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for {
		if err := consumer.Consume(context.Background(), []string{asked.Topic}, saramaMember{member}); err != nil {
			return err
		}
		select {
		case <-member.group.over:
			member.Committed()
			return nil
		default:
		}
	}
}
