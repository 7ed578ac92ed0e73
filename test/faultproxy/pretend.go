package faultproxy

// Success for a write that never happened.

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
)

// PretendDone answers a create, an update or a delete as if it had been done, and does
// nothing. The resourceVersion in the answer is the newest that has passed the proxy,
// so that a client that waits for it isn't kept waiting for ever. Other requests are
// answered with InternalError, since nobody here can work out a patch.
func PretendDone() Action {
	return Action{name: "PretendDone", request: func(f *Fault, x *Exchange, _ func() *Answer) *Answer {
		answer, err := f.p.pretend(x)
		if err != nil {
			return statusAnswer(apierrors.NewInternalError(err).Status())
		}
		return answer
	}}
}

func (p *Proxy) pretend(x *Exchange) (*Answer, error) {
	code := http.StatusOK
	switch x.Verb {
	case "delete":
		return statusAnswer(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusSuccess,
			Code:     http.StatusOK,
		}), nil
	case "create":
		code = http.StatusCreated
	case "update":
	default:
		return nil, errInjected
	}
	object, err := decodeObject(x.Body)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	accessor.SetResourceVersion(p.newest)
	p.mu.Unlock()
	if code == http.StatusCreated {
		accessor.SetNamespace(x.Namespace)
		accessor.SetUID(uuid.NewUUID())
		accessor.SetCreationTimestamp(metav1.NewTime(p.clock.Now()))
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &Answer{Code: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}

// decodeObject reads an object in JSON, of any kind, or in protobuf, of a kind that
// client-go knows. Its kind is set.
func decodeObject(body []byte) (runtime.Object, error) {
	if _, _, ok := unwrap(body); !ok {
		object := &unstructured.Unstructured{}
		return object, object.UnmarshalJSON(body)
	}
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return object, nil
}
