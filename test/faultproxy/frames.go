package faultproxy

// How the events of a watch are written on the wire. In JSON: one object after the
// other. In protobuf: four bytes of length, big endian, and a WatchEvent, whose object
// has the envelope that every object has.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Event is one event of a watch on its way to the client.
type Event struct {
	// Watch is the request that opened the watch.
	Watch *Request
	Type  string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR

	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Labels          map[string]string
	// InitialEnd tells that a bookmark ends the initial events of a WatchList.
	InitialEnd bool

	frame   []byte    // as the API server wrote it
	holders []*Fault  // that must be released first
	due     time.Time // not to be sent before
	last    bool      // the end of the stream, and no event
	broken  bool      // and not an orderly one
}

// framing is a way to write events.
type framing interface {
	// read reads the next frame. io.EOF: there is no more.
	read() ([]byte, error)
	// decode reads the event in a frame.
	decode(frame []byte) (*Event, error)
	// status makes a frame of an ERROR event.
	status(status metav1.Status) ([]byte, error)
}

// maxFrame bounds what a broken length can make the proxy allocate, in bytes.
const maxFrame = 64 << 20

// newFraming returns the framing of a content type.
func newFraming(contentType string, body io.Reader) (framing, error) {
	media, _, _ := strings.Cut(contentType, ";")
	switch media {
	case "application/json":
		return jsonFraming{json.NewDecoder(body)}, nil
	case "application/vnd.kubernetes.protobuf":
		return protobufFraming{body}, nil
	default:
		return nil, fmt.Errorf("a watch in %q: only JSON and protobuf are understood", contentType)
	}
}

// initialEventsEnd is the annotation of the bookmark that ends the initial events.
const initialEventsEnd = metav1.InitialEventsAnnotationKey

func newEvent(kind string, meta metav1.ObjectMeta, frame []byte) *Event {
	return &Event{
		Type:            kind,
		Namespace:       meta.Namespace,
		Name:            meta.Name,
		UID:             meta.UID,
		ResourceVersion: meta.ResourceVersion,
		Labels:          meta.Labels,
		InitialEnd:      kind == "BOOKMARK" && meta.Annotations[initialEventsEnd] == "true",
		frame:           frame,
	}
}

type jsonFraming struct{ decoder *json.Decoder }

func (f jsonFraming) read() ([]byte, error) {
	var frame json.RawMessage
	if err := f.decoder.Decode(&frame); err != nil {
		return nil, err
	}
	return append(bytes.Clone(frame), '\n'), nil
}

func (jsonFraming) decode(frame []byte) (*Event, error) {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(frame, &event); err != nil {
		return nil, fmt.Errorf("read a watch event: %w", err)
	}
	return newEvent(event.Type, readMeta(event.Object), frame), nil
}

func (jsonFraming) status(status metav1.Status) ([]byte, error) {
	return jsonFrame("ERROR", status)
}

// jsonFrame makes a frame of an event.
func jsonFrame(kind string, object any) ([]byte, error) {
	frame, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		return nil, fmt.Errorf("write a watch event: %w", err)
	}
	return append(frame, '\n'), nil
}

type protobufFraming struct{ body io.Reader }

func (f protobufFraming) read() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(f.body, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("read a watch event: a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, length[:])
	if _, err := io.ReadFull(f.body, frame[4:]); err != nil {
		return nil, fmt.Errorf("read a watch event: %w", err)
	}
	return frame, nil
}

func (protobufFraming) decode(frame []byte) (*Event, error) {
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame[4:]); err != nil {
		return nil, fmt.Errorf("read a watch event: %w", err)
	}
	return newEvent(event.Type, readMeta(event.Object.Raw), frame), nil
}

func (protobufFraming) status(status metav1.Status) ([]byte, error) {
	raw, err := status.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write a watch event: %w", err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: "Status", APIVersion: "v1"}, Raw: raw}
	object, err := unknown.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write a watch event: %w", err)
	}
	event := metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: append(bytes.Clone(protobufPrefix), object...)}}
	frame, err := event.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write a watch event: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...), nil
}
