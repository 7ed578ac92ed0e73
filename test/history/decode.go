package history

// How an API server stores objects in etcd.

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// protobufPrefix begins what is stored in protobuf; the rest is JSON.
var protobufPrefix = []byte{'k', '8', 's', 0}

// decode reads a stored object: JSON of any kind, or protobuf of a kind that client-go
// knows. Objects that are encrypted can't be read.
func decode(stored []byte) (*unstructured.Unstructured, error) {
	if !bytes.HasPrefix(stored, protobufPrefix) {
		if !bytes.HasPrefix(stored, []byte{'{'}) {
			return nil, errors.New("it is neither JSON nor protobuf: is it encrypted?")
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(stored); err != nil {
			return nil, fmt.Errorf("read the JSON: %w", err)
		}
		return object, nil
	}
	typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read the protobuf: %w", err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", kind.Kind, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(*kind)
	return object, nil
}
