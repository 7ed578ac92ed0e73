package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

func TestFollowEndsWithTheEventThatIsWaitedFor(t *testing.T) {
	events := watch.NewFakeWithChanSize(3, false)
	for _, name := range []string{"a", "b", "c"} {
		events.Add(&v1alpha1.PodClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var seen []string
	err := follow(t.Context(), events, func(claim *v1alpha1.PodClaim) bool {
		seen = append(seen, claim.Name)
		return claim.Name == "b"
	})
	if err != nil {
		t.Errorf("follow() = %v, want no error", err)
	}
	if got := strings.Join(seen, " "); got != "a b" {
		t.Errorf("saw %q, want %q", got, "a b")
	}
	if !events.IsStopped() {
		t.Error("the watch goes on, want it stopped")
	}
}

func TestFollowSaysWhyItSawNothing(t *testing.T) {
	over := errors.New("it hasn't happened within 30s")
	expired, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	for _, test := range []struct {
		name   string
		ctx    context.Context
		events func(*watch.FakeWatcher)
		want   string
	}{
		{"the deadline has passed", expired, func(*watch.FakeWatcher) {}, "it hasn't happened within 30s"},
		{"the API server ends the watch", t.Context(), func(w *watch.FakeWatcher) { w.Stop() }, "the API server ended the watch"},
		{"the API server reports an error", t.Context(), func(w *watch.FakeWatcher) { w.Error(&metav1.Status{Message: "too old"}) }, "the watch failed: too old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := watch.NewFakeWithChanSize(1, false)
			test.events(events)
			err := follow(test.ctx, events, func(*v1alpha1.PodClaim) bool { return true })
			if err == nil || err.Error() != test.want {
				t.Errorf("follow() = %v, want %q", err, test.want)
			}
		})
	}
}
