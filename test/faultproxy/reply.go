package faultproxy

// What a client is told instead of the truth.

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reply is something to tell a client. The zero value is Reset.
type Reply struct {
	name   string
	kind   replyKind
	status func(*Request) metav1.Status // of status replies
}

type replyKind int

const (
	replyReset replyKind = iota
	replyHang
	replyClosed
	replyStatus
)

// String is the reply's name, for messages.
func (r Reply) String() string {
	if r.name == "" {
		return "Reset"
	}
	return r.name
}

// Reset cuts the request off without an answer: a stream reset over HTTP/2, a TCP
// reset over HTTP/1.1.
func Reset() Reply { return Reply{name: "Reset"} }

// Hang never answers. The client goes on waiting until it gives up.
func Hang() Reply { return Reply{name: "Hang", kind: replyHang} }

// Closed ends a watch in an orderly way, as an API server does after the watch's
// timeoutSeconds. To other requests it is Reset.
func Closed() Reply { return Reply{name: "Closed", kind: replyClosed} }

// Conflict is 409: the object has changed.
func Conflict() Reply {
	return statusReply("Conflict", func(r *Request) *apierrors.StatusError {
		return apierrors.NewConflict(r.GroupResource(), r.Name, errInjected)
	})
}

// AlreadyExists is the other 409: there is one of that name.
func AlreadyExists() Reply {
	return statusReply("AlreadyExists", func(r *Request) *apierrors.StatusError {
		return apierrors.NewAlreadyExists(r.GroupResource(), r.Name)
	})
}

// Forbidden is 403: no right, or a quota.
func Forbidden() Reply {
	return statusReply("Forbidden", func(r *Request) *apierrors.StatusError {
		return apierrors.NewForbidden(r.GroupResource(), r.Name, errInjected)
	})
}

// NotFound is 404: no such object, or no such resource.
func NotFound() Reply {
	return statusReply("NotFound", func(r *Request) *apierrors.StatusError {
		return apierrors.NewNotFound(r.GroupResource(), r.Name)
	})
}

// Expired is 410: the resourceVersion is too old.
func Expired() Reply {
	return statusReply("Expired", func(*Request) *apierrors.StatusError {
		return apierrors.NewResourceExpired("the provided resource version is too old (injected fault)")
	})
}

// Invalid is 422: the object, or a JSON patch's test, was refused.
func Invalid() Reply {
	return statusReply("Invalid", func(r *Request) *apierrors.StatusError {
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Group, Kind: r.Resource}, r.Name, nil)
	})
}

// TooManyRequests is 429, with a Retry-After in whole seconds, at least one. client-go
// obeys it by itself, up to ten times.
func TooManyRequests(retryAfter time.Duration) Reply {
	return statusReply("TooManyRequests", func(*Request) *apierrors.StatusError {
		return apierrors.NewTooManyRequests("injected fault", int(math.Ceil(retryAfter.Seconds())))
	})
}

// InternalError is 500.
func InternalError() Reply {
	return statusReply("InternalError", func(*Request) *apierrors.StatusError { return apierrors.NewInternalError(errInjected) })
}

// Unavailable is 503.
func Unavailable() Reply {
	return statusReply("Unavailable", func(*Request) *apierrors.StatusError {
		return apierrors.NewServiceUnavailable("injected fault")
	})
}

// Timeout is 504, what an API server says of a request that took too long, whether it
// will happen or not.
func Timeout() Reply {
	return statusReply("Timeout", func(*Request) *apierrors.StatusError {
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout (injected fault)", 0)
	})
}

// TooLargeResourceVersion is the 504 of an API server that is behind the version that
// it is asked for.
func TooLargeResourceVersion() Reply {
	return statusReply("TooLargeResourceVersion", func(*Request) *apierrors.StatusError {
		err := apierrors.NewTimeoutError("Too large resource version (injected fault)", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return err
	})
}

type injected struct{}

func (injected) Error() string { return "injected fault" }

var errInjected error = injected{}

func statusReply(name string, make func(*Request) *apierrors.StatusError) Reply {
	return Reply{name: name, kind: replyStatus, status: func(r *Request) metav1.Status {
		status := make(r).Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return status
	}}
}

// answer makes the reply the answer to a request.
func (r Reply) answer(to *Request) *Answer {
	switch r.kind {
	case replyHang:
		return &Answer{hang: true}
	case replyStatus:
		return statusAnswer(r.status(to))
	default:
		return nil
	}
}

func statusAnswer(status metav1.Status) *Answer {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // a Status of our own making
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return &Answer{Code: int(status.Code), Header: header, Body: body}
}
