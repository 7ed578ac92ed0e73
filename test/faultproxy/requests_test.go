package faultproxy_test

// Faults of requests: F2, F6, F8, F9, F10 of the scenarios, and writes that happen
// late.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
)

var creations = faultproxy.Match{Verb: "create", Resource: "configmaps"}

func TestAnswerIsLostAndTheWriteHasHappened(t *testing.T) {
	for _, reply := range []faultproxy.Reply{faultproxy.Reset(), faultproxy.Timeout()} {
		t.Run(reply.String(), func(t *testing.T) {
			inEachMode(t, func(t *testing.T, r *rig) {
				lost := r.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.LoseAnswer(reply)})
				_, err := r.createThrough(within(t, deadline), "a")
				if err == nil || apierrors.IsTimeout(err) != (reply.String() == "Timeout") {
					t.Errorf("the client was told %v", err)
				}
				if lost.Fired() != 1 || !r.exists("a") {
					t.Errorf("fired %d times, the object exists: %t; want once, and that it does", lost.Fired(), r.exists("a"))
				}
				log := r.proxy.Log().Select(creations)
				if len(log) != 1 || log[0].Code != http.StatusCreated || log[0].AnswerRV == "" || log[0].InDoubt() || log[0].Told == http.StatusCreated {
					t.Errorf("the log says %+v, want one creation, 201, that the client wasn't told of", log)
				}
				if _, err := r.createThrough(within(t, deadline), "b"); err != nil {
					t.Errorf("the write after it: %v", err)
				}
			})
		})
	}
}

func TestRefusedRequestNeverHappens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply faultproxy.Reply
		told  func(error) bool
	}{
		{faultproxy.Conflict(), apierrors.IsConflict},
		{faultproxy.AlreadyExists(), apierrors.IsAlreadyExists},
		{faultproxy.Forbidden(), apierrors.IsForbidden},
		{faultproxy.NotFound(), apierrors.IsNotFound},
		{faultproxy.Expired(), apierrors.IsResourceExpired},
		{faultproxy.Invalid(), apierrors.IsInvalid},
		{faultproxy.InternalError(), apierrors.IsInternalError},
		{faultproxy.Unavailable(), apierrors.IsServiceUnavailable},
		{faultproxy.Timeout(), apierrors.IsTimeout},
		{faultproxy.Reset(), isTransportError},
	} {
		t.Run(c.reply.String(), func(t *testing.T) {
			t.Parallel()
			for _, m := range []mode{modes[0], modes[7]} {
				r := newRig(t, m)
				r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.Refuse(c.reply)})
				if _, err := r.createThrough(within(t, deadline), "a"); !c.told(err) {
					t.Errorf("the client was told %v", err)
				}
				if r.exists("a") {
					t.Error("the object exists")
				}
				for _, q := range r.proxy.Log().Select(creations) {
					if !q.Forwarded.IsZero() || q.InDoubt() {
						t.Errorf("the log says that the request was forwarded: %+v", q)
					}
				}
			}
		})
	}
}

// isTransportError tells whether no answer came at all.
func isTransportError(err error) bool {
	status := apierrors.APIStatus(nil)
	return err != nil && !errors.As(err, &status)
}

func TestClientObeysRetryAfter(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		refused := r.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.Refuse(faultproxy.TooManyRequests(time.Second))})
		if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
			t.Fatalf("client-go didn't try again: %v", err)
		}
		log := r.proxy.Log().Select(creations)
		if refused.Fired() != 1 || len(log) != 2 || log[0].Told != http.StatusTooManyRequests {
			t.Fatalf("the log says %+v, want a 429 and another try", log)
		}
		if waited := log[1].Arrived.Sub(log[0].Replied); waited < time.Second {
			t.Errorf("the client waited %s, want the second that it was told", waited)
		}
	})
}

func TestTooLargeResourceVersionIsUnderstoodByTheClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "list"}, Do: faultproxy.Refuse(faultproxy.TooLargeResourceVersion())})
	result := r.client.CoreV1().RESTClient().Get().Namespace(r.namespace).Resource("configmaps").MaxRetries(0).Do(within(t, deadline))
	if err := result.Error(); !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("the client was told %v", err)
	}
}

func TestWriteHappensLateOnCommand(t *testing.T) {
	for _, reply := range []faultproxy.Reply{faultproxy.Reset(), faultproxy.Timeout(), faultproxy.Hang()} {
		t.Run(reply.String(), func(t *testing.T) {
			inEachMode(t, func(t *testing.T, r *rig) {
				late := r.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.LateCommit(reply)})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := make(chan error, 1)
				go func() {
					_, err := r.createThrough(ctx, "late")
					told <- err
				}()
				waitFired(t, late, 1)
				if reply.String() == "Hang" {
					cancel() // the client gives up
				}
				if err := <-told; err == nil {
					t.Error("the client was told that it was done")
				}
				if r.exists("late") {
					t.Error("it happened before it was to")
				}
				late.Release()
				if err := late.Settle(within(t, deadline)); err != nil {
					t.Fatal(err)
				}
				if !r.exists("late") {
					t.Error("it never happened")
				}
			})
		})
	}
}

func TestHeldRequestIsSentWhenReleased(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		held := r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.HoldRequest()})
		told := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := r.createThrough(within(t, deadline), fmt.Sprintf("a%d", i))
				told <- err
			}()
			waitFired(t, held, i+1)
		}
		if r.exists("a0") || r.exists("a1") {
			t.Error("a held request happened")
		}
		held.ReleaseNext()
		if err := <-told; err != nil || !r.exists("a0") || r.exists("a1") {
			t.Errorf("after ReleaseNext: %v, a0 exists %t, a1 exists %t; want the first only", err, r.exists("a0"), r.exists("a1"))
		}
		held.Release()
		if err := <-told; err != nil || !r.exists("a1") {
			t.Errorf("after Release: %v, a1 exists %t", err, r.exists("a1"))
		}
	})
}

func TestHeldRequestDiesWithItsClient(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		held := r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.HoldRequest()})
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error, 1)
		go func() {
			_, err := r.createThrough(ctx, "a")
			told <- err
		}()
		waitFired(t, held, 1)
		cancel()
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Errorf("the client was told %v", err)
		}
		if err := held.Settle(within(t, deadline)); err != nil {
			t.Fatal(err)
		}
		held.Release()
		if r.exists("a") {
			t.Error("it happened although its client had given up")
		}
	})
}

func TestEventComesBeforeTheHeldAnswer(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		held := r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.HoldAnswer()})
		told := make(chan error, 1)
		go func() {
			_, err := r.createThrough(within(t, deadline), "a")
			told <- err
		}()
		waitFired(t, held, 1)
		c.wait("add a=1")
		select {
		case err := <-told:
			t.Errorf("the answer came before it was released: %v", err)
		default:
		}
		held.Release()
		if err := <-told; err != nil {
			t.Errorf("the answer: %v", err)
		}
	})
}

func TestAnswerComesLateAndTheEventDoesNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	c := r.informer()
	const by = 500 * time.Millisecond
	r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.LagAnswer(by)})
	began := time.Now()
	told := make(chan error, 1)
	go func() {
		_, err := r.createThrough(within(t, deadline), "a")
		told <- err
	}()
	c.wait("add a=1")
	select {
	case err := <-told:
		t.Errorf("the answer came before the event: %v", err)
	default:
	}
	if err := <-told; err != nil || time.Since(began) < by {
		t.Errorf("the answer %v came after %s, want %s at least", err, time.Since(began), by)
	}
}

func TestCallbacksStandBeforeAndAfterTheCommit(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		var before, after atomic.Bool
		var code atomic.Int64
		r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.Before(func(x *faultproxy.Exchange) { before.Store(r.exists(x.Name)) })})
		r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.After(func(x *faultproxy.Exchange, a *faultproxy.Answer) {
			after.Store(r.exists(x.Name))
			code.Store(int64(a.Code))
		})})
		if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
			t.Fatal(err)
		}
		if before.Load() || !after.Load() || code.Load() != http.StatusCreated {
			t.Errorf("the object existed before: %t, after: %t, answer %d; want false, true, 201", before.Load(), after.Load(), code.Load())
		}
	})
}

func TestInsteadOfIsTheEndOfTheRequest(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		called := make(chan string, 1)
		r.proxy.Add(faultproxy.Rule{Match: creations, Skip: 1, Times: 1, Do: faultproxy.InsteadOf(func(x *faultproxy.Exchange) { called <- x.Name })})
		if _, err := r.createThrough(within(t, deadline), "first"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.createThrough(within(t, deadline), "second"); !isTransportError(err) {
			t.Errorf("the client was told %v", err)
		}
		if got := <-called; got != "second" || r.exists("second") {
			t.Errorf("called for %q, which exists: %t; want second, which doesn't", got, r.exists("second"))
		}
	})
}

func TestLeaseRequestsVanishAndOthersPass(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		hole := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Group: "coordination.k8s.io", Resource: "leases"},
			Do:    faultproxy.Refuse(faultproxy.Hang()),
		})
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error, 1)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}
		go func() {
			_, err := r.client.CoordinationV1().Leases(r.namespace).Create(ctx, lease, metav1.CreateOptions{})
			told <- err
		}()
		waitFired(t, hole, 1)
		if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
			t.Errorf("another request: %v", err)
		}
		cancel()
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Errorf("the client was told %v", err)
		}
		leases, err := r.direct.CoordinationV1().Leases(r.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(leases.Items) != 0 {
			t.Errorf("leases %v, %v: want none", leases.Items, err)
		}
	})
}

func TestPretendedWritesLookDoneAndAreNot(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		there := r.create("there")
		writes := faultproxy.Match{Verb: faultproxy.Writes, Resource: "configmaps"}
		if _, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "there", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		r.proxy.Add(faultproxy.Rule{Match: writes, Do: faultproxy.PretendDone()})
		created, err := r.createThrough(within(t, deadline), "a")
		if err != nil || created.Name != "a" || created.UID == "" || created.ResourceVersion != there.ResourceVersion || created.Data["value"] != "1" {
			t.Errorf("the client was told %v, %v; want an a like a real one, at version %s", created, err, there.ResourceVersion)
		}
		if err := r.client.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "there", metav1.DeleteOptions{}); err != nil {
			t.Errorf("the client was told %v of its delete", err)
		}
		if r.exists("a") || !r.exists("there") {
			t.Errorf("a exists %t, there exists %t; want nothing done", r.exists("a"), r.exists("there"))
		}
		_, err = r.client.CoreV1().ConfigMaps(r.namespace).Patch(t.Context(), "there", types.MergePatchType, []byte(`{"data":{"value":"2"}}`), metav1.PatchOptions{})
		if !apierrors.IsInternalError(err) {
			t.Errorf("the client was told %v of its patch", err)
		}
	})
}

func TestRulesNestInTheOrderOfTheirAdding(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	var order []string
	note := func(name string) faultproxy.Action {
		return faultproxy.Do(name, func(_ *faultproxy.Exchange, forward func() *faultproxy.Answer) *faultproxy.Answer {
			order = append(order, name+" in")
			answer := forward()
			order = append(order, name+" out")
			return answer
		})
	}
	r.proxy.Add(faultproxy.Rule{Match: creations, Do: note("outer")})
	r.proxy.Add(faultproxy.Rule{Match: creations, Do: note("inner"), Name: "inner"})
	if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(order), "[outer in inner in inner out outer out]"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(r.proxy.Log().Select(creations)[0].Faults), "[outer create configmaps inner]"; got != want {
		t.Errorf("the log names the faults %s, want %s", got, want)
	}
}

func TestInnerRuleDoesNotCountWhatTheOuterRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	r.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.Refuse(faultproxy.Conflict())})
	inner := r.proxy.Add(faultproxy.Rule{Match: creations, Times: 1, Do: faultproxy.Refuse(faultproxy.Forbidden())})
	_, first := r.createThrough(within(t, deadline), "a")
	_, second := r.createThrough(within(t, deadline), "a")
	_, third := r.createThrough(within(t, deadline), "a")
	if !apierrors.IsConflict(first) || !apierrors.IsForbidden(second) || third != nil || inner.Fired() != 1 {
		t.Errorf("told %v, %v, %v, the inner rule fired %d times; want 409, 403, nil, once", first, second, third, inner.Fired())
	}
}

func TestWaitFiredSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	f := r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.Refuse(faultproxy.Conflict())})
	if _, err := r.createThrough(within(t, deadline), "a"); !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	err := f.WaitFired(within(t, 20*time.Millisecond), 2)
	want := `fault "Refuse(Conflict) create configmaps" fired 1 of 2 times: context deadline exceeded`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	f.Remove()
	if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
		t.Errorf("after Remove: %v", err)
	}
}

func TestRuleChoosesByVerbResourceNamespaceNameLabelAndSubresource(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[4])
	pods := r.client.CoreV1().Pods(r.namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"pool": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	refuse := func(m faultproxy.Match) func() {
		return r.proxy.Add(faultproxy.Rule{Match: m, Do: faultproxy.Refuse(faultproxy.Conflict())}).Remove
	}
	create := func() error {
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, c := range []struct {
		match faultproxy.Match
		fires bool
	}{
		{faultproxy.Match{}, true},
		{faultproxy.Match{Verb: "create", Group: "core", Resource: "pods", Namespace: r.namespace, Name: "p", Labels: map[string]string{"pool": "x"}}, true},
		{faultproxy.Match{Resource: "pods", Name: "p*"}, true},
		{faultproxy.Match{Resource: "pods", Subresource: faultproxy.Any}, true},
		{faultproxy.Match{Verb: faultproxy.Writes}, true},
		{faultproxy.Match{Where: func(q *faultproxy.Request) bool { return q.Meta.Labels["pool"] == "x" }}, true},
		{faultproxy.Match{Verb: "update"}, false},
		{faultproxy.Match{Verb: faultproxy.Reads}, false},
		{faultproxy.Match{Group: "apps"}, false},
		{faultproxy.Match{Resource: "configmaps"}, false},
		{faultproxy.Match{Resource: "pods", Subresource: "status"}, false},
		{faultproxy.Match{Namespace: "other"}, false},
		{faultproxy.Match{Name: "q*"}, false},
		{faultproxy.Match{Labels: map[string]string{"pool": "y"}}, false},
		{faultproxy.Match{Where: func(*faultproxy.Request) bool { return false }}, false},
	} {
		remove := refuse(c.match)
		if err := create(); apierrors.IsConflict(err) != c.fires {
			t.Errorf("a rule for %s: the client was told %v, want that it fires: %t", c.match.String(), err, c.fires)
		}
		remove()
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer refuse(faultproxy.Match{Resource: "pods", Subresource: "status"})()
	_, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsConflict(err) {
		t.Errorf("a patch of the status: %v, want the conflict", err)
	}
	if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a patch of the Pod itself: %v", err)
	}
}
