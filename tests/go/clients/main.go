// Clients of Kafka that are written in Go, for a program that is not: `clients franz-go` or `clients sarama`.
//
// Each line of standard input is a JSON object; "do" says what. Each is answered by one line: an object, with "error"
// where it failed. Commands and answers are those of java/clients/ClientLoop.java. It ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const most = 90 * time.Second

// Settings are those of Java's client that a test gives; what else a client needs is the library's default.
type Settings struct {
	Bootstrap     string `json:"bootstrap.servers"`
	Codec         string `json:"compression.type"`
	Idempotent    bool   `json:"enable.idempotence"`
	Group         string `json:"group.id"`
	Transactional string `json:"transactional.id"`
}

type Asked struct {
	Do         string   `json:"do"`
	Settings   Settings `json:"settings"`
	Topic      string   `json:"topic"`
	Partition  int32    `json:"partition"`
	Partitions int32    `json:"partitions"`
	Records    []Record `json:"records"`
	Targets    []int64  `json:"targets"`
	Members    int      `json:"members"`
	Count      int      `json:"count"`
}

// Header has a null value for nil.
type Header struct {
	Key   string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Key, h.Value}) }

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Key, &h.Value})
}

// Record is [key, value, timestamp, headers], where nil is null.
type Record struct {
	Key, Value []byte
	Timestamp  *int64
	Headers    []Header
}

func (r *Record) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.Key, &r.Value, &r.Timestamp, &r.Headers})
}

// Row is [partition, offset, key, value, timestamp, type, headers]; the type is null where the library has none.
type Row []any

func row(partition int32, offset int64, key, value []byte, at time.Time, kind any, headers []Header) Row {
	if headers == nil {
		headers = []Header{}
	}
	return Row{partition, offset, key, value, at.UnixMilli(), kind, headers}
}

// Library is a client library. Offsets are -1 where there is none.
type Library interface {
	Produce(asked Asked) ([]any, error)
	Consume(asked Asked) ([]Row, error)
	Ends(asked Asked) (begin, end int64, err error)
	Times(asked Asked) ([]any, error)
	Committed(asked Asked) ([]any, error)
	BeginTransaction(asked Asked) error
	// Join makes one member, which adds to the group until its `over` is closed, commits, says so and leaves.
	Join(asked Asked, member *Member) error
}

// Member is one consumer of a group. Its fields are guarded by the group's lock.
type Member struct {
	group    *Group
	assigned int
	rows     []Row
}

// Group has members that each run in the background.
type Group struct {
	lock      sync.Mutex
	failed    error
	members   []*Member
	over      chan struct{}
	committed sync.WaitGroup
	left      sync.WaitGroup
}

func (m *Member) Add(rows ...Row) {
	m.group.lock.Lock()
	defer m.group.lock.Unlock()
	m.rows = append(m.rows, rows...)
}

func (m *Member) Assigned(add func(now int) int) {
	m.group.lock.Lock()
	defer m.group.lock.Unlock()
	m.assigned = add(m.assigned)
}

// Committed waits for all: who leaves earlier moves the others' partitions about.
func (m *Member) Committed() {
	m.group.committed.Done()
	m.group.committed.Wait()
}

func NewGroup(library Library, asked Asked) (*Group, error) {
	group := &Group{over: make(chan struct{})}
	group.committed.Add(asked.Members)
	for range asked.Members {
		member := &Member{group: group, rows: []Row{}}
		group.members = append(group.members, member)
		group.left.Go(func() {
			if err := library.Join(asked, member); err != nil {
				group.lock.Lock()
				defer group.lock.Unlock()
				group.failed = err
			}
		})
	}
	return group, group.await("every member has partitions", func() bool {
		sum := 0
		for _, one := range group.members {
			if one.assigned == 0 {
				return false
			}
			sum += one.assigned
		}
		return sum == int(asked.Partitions)
	})
}

func (g *Group) await(what string, holds func() bool) error {
	for until := time.Now().Add(most); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		g.lock.Lock()
		failed, done := g.failed, holds()
		g.lock.Unlock()
		if failed != nil || done {
			return failed
		}
	}
	return fmt.Errorf("it never comes that %s", what)
}

func (g *Group) Gather(count int) ([][]Row, error) {
	err := g.await(fmt.Sprintf("the members have %d records", count), func() bool {
		sum := 0
		for _, one := range g.members {
			sum += len(one.rows)
		}
		return sum >= count
	})
	close(g.over)
	if err != nil {
		return nil, err
	}
	g.left.Wait()
	rows := [][]Row{}
	for _, one := range g.members {
		rows = append(rows, one.rows)
	}
	return rows, g.failed
}

func answer(library Library, group **Group, asked Asked) (found map[string]any, err error) {
	found = map[string]any{}
	switch asked.Do {
	case "produce":
		found["sends"], err = library.Produce(asked)
	case "consume":
		found["rows"], err = library.Consume(asked)
	case "ends":
		found["beginning"], found["end"], err = library.Ends(asked)
	case "times":
		found["answers"], err = library.Times(asked)
	case "committed":
		found["offsets"], err = library.Committed(asked)
	case "join":
		*group, err = NewGroup(library, asked)
	case "gather":
		found["members"], err = (*group).Gather(asked.Count)
	case "transaction":
		err = library.BeginTransaction(asked)
	default:
		err = fmt.Errorf("unknown: %s", asked.Do)
	}
	return found, err
}

func main() {
	library := map[string]Library{"franz-go": Franz{}, "sarama": Sarama{}}[os.Args[1]]
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	var group *Group
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked Asked
		var found map[string]any
		if err = json.Unmarshal(line, &asked); err == nil {
			found, err = answer(library, &group, asked)
		}
		if err != nil {
			found = map[string]any{"error": err.Error()}
		}
		if out.Encode(found) != nil {
			return
		}
	}
}
