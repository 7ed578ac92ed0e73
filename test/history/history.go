package history

// What a history consists of.

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The resources that the judges know.
var (
	Pods      = schema.GroupResource{Resource: "pods"}
	WarmPools = schema.GroupResource{Group: group, Resource: "warmpools"}
	PodClaims = schema.GroupResource{Group: group, Resource: "podclaims"}
	Leases    = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// The API's words. They are repeated here, so that a mistake in the product's own
// constants can't hide from the judges.
const (
	group      = "warmpool.dev"
	labelPool  = "warmpool.dev/pool"
	labelState = "warmpool.dev/state"
	labelClaim = "warmpool.dev/claim"
	labelHash  = "warmpool.dev/template-hash"
	claimed    = "claimed"

	recreate  = "Recreate"
	onHandOut = "OnHandOut"
)

// Version is one version of one object. It doesn't change once it is made.
type Version struct {
	// Revision is etcd's: the object's resourceVersion, and its place in the order
	// of all writes.
	Revision int64
	// Time is when the recorder was told, a little after the write.
	Time     time.Time
	Resource schema.GroupResource
	// Object is the state after the write; of a deletion, the last state before.
	Object *unstructured.Unstructured
	// Deleted tells that the write removed the object.
	Deleted bool
	// Initial tells that the object was there when the recording began.
	Initial bool

	// The object as what it is, whichever it is.
	pod   *corev1.Pod
	pool  *Pool
	claim *Claim
	lease *coordinationv1.Lease
}

// UID is the object's.
func (v *Version) UID() types.UID { return v.Object.GetUID() }

// String names the object: "pods ns/name".
func (v *Version) String() string {
	return fmt.Sprintf("%s %s/%s", v.Resource.Resource, v.Object.GetNamespace(), v.Object.GetName())
}

// Pool is the part of a WarmPool that is judged.
type Pool struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas                *int32             `json:"replicas"`
		MaxSize                 int32              `json:"maxSize"`
		MinReadySeconds         int32              `json:"minReadySeconds"`
		ProgressDeadlineSeconds *int32             `json:"progressDeadlineSeconds"`
		MaxIdleSeconds          int32              `json:"maxIdleSeconds"`
		Tolerance               intstr.IntOrString `json:"tolerance"`
		Paused                  bool               `json:"paused"`
		UpdateStrategy          struct {
			Type          string `json:"type"`
			RollingUpdate struct {
				MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
				MaxSurge       intstr.IntOrString  `json:"maxSurge"`
			} `json:"rollingUpdate"`
		} `json:"updateStrategy"`
		ClaimLifetime struct {
			Default *metav1.Duration `json:"default"`
			Maximum *metav1.Duration `json:"maximum"`
		} `json:"claimLifetime"`
		Template map[string]any `json:"template"`
	} `json:"spec"`
	Status struct {
		Replicas             int32              `json:"replicas"`
		ReadyReplicas        int32              `json:"readyReplicas"`
		UpdatedReplicas      int32              `json:"updatedReplicas"`
		UpdatedReadyReplicas int32              `json:"updatedReadyReplicas"`
		PendingClaims        int32              `json:"pendingClaims"`
		UpdateRevision       string             `json:"updateRevision"`
		LastProgressTime     *metav1.Time       `json:"lastProgressTime"`
		ObservedGeneration   int64              `json:"observedGeneration"`
		Conditions           []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// Claim is the part of a PodClaim that is judged.
type Claim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PoolName       string           `json:"poolName"`
		TimeoutSeconds int32            `json:"timeoutSeconds"`
		Lifetime       *metav1.Duration `json:"lifetime"`
	} `json:"spec"`
	Status struct {
		Pod *struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"pod"`
		BoundTime          *metav1.Time       `json:"boundTime"`
		ExpirationTime     *metav1.Time       `json:"expirationTime"`
		ObservedGeneration int64              `json:"observedGeneration"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// newVersion reads the object of a version.
func newVersion(v Version) (Version, error) {
	var into any
	switch v.Resource {
	case Pods:
		v.pod = &corev1.Pod{}
		into = v.pod
	case WarmPools:
		v.pool = &Pool{}
		into = v.pool
	case PodClaims:
		v.claim = &Claim{}
		into = v.claim
	case Leases:
		v.lease = &coordinationv1.Lease{}
		into = v.lease
	default:
		return v, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v.Object.Object, into); err != nil {
		return v, fmt.Errorf("read %s at revision %d: %w", v.String(), v.Revision, err)
	}
	return v, nil
}

// History is all that was written in a span, in order. It is safe for concurrent
// reading.
type History struct {
	// Versions are in the order of their revisions, those that were there at the
	// beginning first.
	Versions []Version
	// From and To are the revisions between which nothing is missing.
	From, To int64
}

// Write stores the history, one version a line, so that it can be judged again.
func (h *History) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	if err := encoder.Encode(span{h.From, h.To}); err != nil {
		return fmt.Errorf("store a history: %w", err)
	}
	for i := range h.Versions {
		if err := encoder.Encode(&h.Versions[i]); err != nil {
			return fmt.Errorf("store a history: %w", err)
		}
	}
	return nil
}

type span struct{ From, To int64 }

// Read reads a history that Write has stored.
func Read(r io.Reader) (*History, error) {
	decoder := json.NewDecoder(r)
	var s span
	if err := decoder.Decode(&s); err != nil {
		return nil, fmt.Errorf("read a history: %w", err)
	}
	h := &History{From: s.From, To: s.To}
	for decoder.More() {
		var stored Version
		if err := decoder.Decode(&stored); err != nil {
			return nil, fmt.Errorf("read a history: %w", err)
		}
		v, err := newVersion(stored)
		if err != nil {
			return nil, fmt.Errorf("read a history: %w", err)
		}
		h.Versions = append(h.Versions, v)
	}
	return h, nil
}

// step is one version, with the world before and after it.
type step struct {
	*Version
	index int // of the version in the history
	// old is the version of the same object before; nil: none.
	old *Version
	// world is the state after the version; it changes with the next step.
	world *World
}

// beginsToEnd tells whether the object's deletion begins with this version, or happens at
// once.
func (s step) beginsToEnd() bool {
	return s.old != nil && s.old.Object.GetDeletionTimestamp() == nil && (s.Deleted || s.Object.GetDeletionTimestamp() != nil)
}

// replay goes through the history from its beginning.
func (h *History) replay(each func(step)) {
	w := NewWorld()
	for i := range h.Versions {
		v := &h.Versions[i]
		old := w.apply(v)
		each(step{Version: v, index: i, old: old, world: w})
	}
}

// Replay goes through the history from its beginning, and shows each version with the
// world after it, which changes with the next one.
func (h *History) Replay(each func(*Version, *World)) {
	h.replay(func(s step) { each(s.Version, s.world) })
}

// end is the world at the end.
func (h *History) end() *World {
	w := NewWorld()
	for i := range h.Versions {
		w.apply(&h.Versions[i])
	}
	return w
}
