package faultproxy_test

// Faults of watches: F1, F3, F4, F7 of the scenarios.

import (
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/faultproxy"
)

var configMaps = faultproxy.Match{Resource: "configmaps"}

func TestEventsPassWithoutRules(t *testing.T) {
	inEachMode(t, func(_ *testing.T, r *rig) {
		r.create("early")
		c := r.informer()
		r.set("early", "2")
		r.create("late")
		r.remove("early")
		c.wait("add early=1", "update early=2", "add late=1", "delete early=2")
	})
}

func TestHeldStreamDeliversAllOfItInOrderWhenReleased(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		c := r.informer()
		held := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.HoldStream()})
		r.set("a", "2")
		r.create("b")
		r.remove("a")
		waitFired(t, held, 3)
		if got := c.value(r.namespace, "a"); got != "1" {
			t.Errorf("the cache holds a=%q while events are held, want the old 1", got)
		}
		held.Release()
		c.wait("add a=1", "update a=2", "add b=1", "delete a=2")
	})
}

func TestStreamIsHeldFromTheChosenObjectsEventOn(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		held := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Resource: "configmaps", Name: "b*", Event: "MODIFIED", Namespace: r.namespace},
			Times: 1,
			Do:    faultproxy.HoldStream(),
		})
		r.create("a")
		r.create("b1")
		r.set("a", "2")
		r.set("b1", "2")
		waitFired(t, held, 1)
		r.set("a", "3") // comes after b1's event, and so waits with it
		c.wait("add a=1", "add b1=1", "update a=2")
		held.Release()
		c.wait("add a=1", "add b1=1", "update a=2", "update b1=2", "update a=3")
	})
}

func TestHeldEventsAreOvertakenByLaterOnes(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		c := r.informer()
		held := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Labels: map[string]string{"name": "a"}},
			Times: 1,
			Do:    faultproxy.HoldEvents(),
		})
		r.set("a", "2")
		waitFired(t, held, 1)
		r.set("a", "3")
		c.wait("add a=1", "update a=3")
		held.Release()
		c.wait("add a=1", "update a=3", "update a=2") // the old over the new
	})
}

func TestTwoHoldersMustBothRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	c := r.informer()
	all := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.HoldStream()})
	one := r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Name: "a"}, Do: faultproxy.HoldStream()})
	r.create("a")
	waitFired(t, one, 1)
	all.Release()
	r.create("b")
	always(t, 200*time.Millisecond, "an event passed that one rule still holds", func() bool { return len(c.events()) == 0 })
	one.Release()
	c.wait("add a=1", "add b=1")
}

func TestEventsComeLateAndInOrder(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		const by = 300 * time.Millisecond
		lag := r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Name: "a*"}, Do: faultproxy.LagEvents(by)})
		began := time.Now()
		r.create("a")
		r.create("b") // not late itself, but behind one that is
		waitFired(t, lag, 1)
		c.wait("add a=1", "add b=1")
		if took := time.Since(began); took < by {
			t.Errorf("the events came after %s, want %s at least", took, by)
		}
	})
}

func TestFrozenWatchStaysOpenAndSilent(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		frozen := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.Freeze()})
		r.create("a")
		waitFired(t, frozen, 1)
		if _, err := r.createThrough(within(t, deadline), "b"); err != nil {
			t.Errorf("a write while the watch is frozen: %v", err)
		}
		waitFired(t, frozen, 2)
		if got := len(r.proxy.OpenWatches(configMaps)); got != 1 || len(c.events()) != 0 {
			t.Errorf("%d watches open, events %q: want the one watch, and nothing seen", got, c.events())
		}
		frozen.Release()
		c.wait("add a=1", "add b=1")
	})
}

func TestFrozenWatchWithholdsItsEndToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	frozen := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.Freeze()})
	now, seconds := r.create("a").ResourceVersion, int64(1)
	w, err := r.client.CoreV1().ConfigMaps(r.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: now, TimeoutSeconds: &seconds})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	waitFired(t, frozen, 1) // the only thing to freeze is the end
	select {
	case _, open := <-w.ResultChan():
		t.Fatalf("the client saw something of a frozen watch (an event: %t)", open)
	default:
	}
	frozen.Release()
	select {
	case _, open := <-w.ResultChan():
		if open {
			t.Error("the client saw an event, want the end")
		}
	case <-within(t, deadline).Done():
		t.Error("the end never came")
	}
}

func TestFrozenEventsAreLostIn410AndTheRelistShowsWhatHappened(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("gone")
		r.create("stays")
		c := r.informer()
		frozen := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.Freeze()})
		r.remove("gone")
		r.create("new")
		waitFired(t, frozen, 2)
		if n := r.proxy.EndWatches(configMaps, faultproxy.Expired()); n != 1 {
			t.Fatalf("ended %d watches, want 1", n)
		}
		frozen.Release()
		eventually(t, "the relist", func() bool { return slices.Contains(c.events(), "tombstone gone=1") })
		eventually(t, "the relist", func() bool { return slices.Contains(c.events(), "add new=1") })
		if slices.Contains(c.events(), "delete gone=1") {
			t.Error("the deletion came as an event, which was to be lost")
		}
	})
}

func TestStreamEndsWith410AtTheChosenEvent(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		ended := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Resource: "configmaps", Event: "ADDED"},
			Skip:  1,
			Times: 1,
			Do:    faultproxy.EndStream(faultproxy.Expired()),
		})
		r.create("a")
		c.wait("add a=1")
		r.create("b")
		waitFired(t, ended, 1)
		eventually(t, "b, by a relist", func() bool { return slices.Contains(c.events(), "add b=1") })
		_, err := r.proxy.WaitRequests(within(t, deadline), 2, faultproxy.Match{Verb: "watch", Resource: "configmaps"}, nil)
		if err != nil {
			t.Errorf("no watch was opened after the 410: %v", err)
		}
	})
}

func TestWatchIsTakenUpAgainAfterItWasClosedOrReset(t *testing.T) {
	for _, reply := range []faultproxy.Reply{faultproxy.Closed(), faultproxy.Reset()} {
		t.Run(reply.String(), func(t *testing.T) {
			inEachMode(t, func(t *testing.T, r *rig) {
				r.create("a")
				c := r.informer()
				r.set("a", "2")
				c.wait("add a=1", "update a=2")
				if n := r.proxy.EndWatches(configMaps, reply); n != 1 {
					t.Fatalf("ended %d watches, want 1", n)
				}
				r.set("a", "3")
				eventually(t, "the next event", func() bool { return c.value(r.namespace, "a") == "3" })
			})
		})
	}
}

func TestWatchBreaksWithItsAPIServer(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Options{})
	r := newRigAt(t, modes[0], cp)
	w, err := r.client.CoreV1().ConfigMaps(r.namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := cp.APIServers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.ResultChan():
	case <-within(t, deadline).Done():
		t.Error("the watch is open still")
	}
	if _, err := r.createThrough(within(t, deadline), "a"); !isTransportError(err) {
		t.Errorf("a write to an API server that is down: %v", err)
	}
}

func TestInformerNeverSyncsWithoutTheBookmarkThatEndsTheInitialEvents(t *testing.T) {
	for _, m := range modes {
		if !m.watchList {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, m)
			r.create("a")
			stripped := r.proxy.Add(faultproxy.Rule{
				Match: faultproxy.Match{Event: "BOOKMARK", WhereEvent: func(e *faultproxy.Event) bool { return e.InitialEnd }},
				Do:    faultproxy.DropEvents(),
			})
			c := r.startInformer()
			waitFired(t, stripped, 1)
			always(t, 300*time.Millisecond, "it synced", func() bool { return !c.informer.HasSynced() })
			stripped.Remove()
			r.proxy.EndWatches(configMaps, faultproxy.Closed())
			eventually(t, "the informer to sync, once bookmarks pass", c.informer.HasSynced)
		})
	}
}

func TestListOfAWatchListStopsInItsMidst(t *testing.T) {
	for _, m := range modes {
		if !m.watchList {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, m)
			r.create("a")
			r.create("b")
			r.create("c")
			held := r.proxy.Add(faultproxy.Rule{Match: configMaps, Skip: 1, Times: 1, Do: faultproxy.HoldStream()})
			c := r.startInformer()
			waitFired(t, held, 1)
			always(t, 100*time.Millisecond, "it synced", func() bool { return !c.informer.HasSynced() })
			held.Release()
			eventually(t, "the informer to sync", c.informer.HasSynced)
		})
	}
}

func TestOnEventIsCalledBeforeTheClientSeesIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		type seen struct {
			event string
			late  bool
		}
		calls := make(chan seen, 1)
		r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Resource: "configmaps", Name: "a"},
			Do: faultproxy.OnEvent(func(e *faultproxy.Event) {
				calls <- seen{e.Type + " " + e.Namespace + "/" + e.Name, len(c.events()) > 0}
			}),
		})
		created := r.create("a")
		got := <-calls
		if want := (seen{"ADDED " + r.namespace + "/a", false}); got != want {
			t.Errorf("called with %v, want %v", got, want)
		}
		c.wait("add a=1")
		err := r.proxy.WaitDeliveries(within(t, deadline), 1, func(d faultproxy.Delivery) bool {
			return d.UID == created.UID && d.ResourceVersion == created.ResourceVersion && d.Type == "ADDED" && !d.Initial
		})
		if err != nil {
			t.Errorf("the log has no such delivery: %v", err)
		}
	})
}

func TestRefusedWatchAndListKeepTheInformerFromSyncing(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		refused := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Verb: faultproxy.Reads, Resource: "configmaps"},
			Do:    faultproxy.Refuse(faultproxy.Forbidden()),
		})
		c := r.startInformer()
		waitFired(t, refused, 1)
		if c.informer.HasSynced() {
			t.Error("the informer synced on a refusal")
		}
		_, err := r.client.CoreV1().ConfigMaps(r.namespace).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("the list was answered %v, want forbidden", err)
		}
		if _, err := r.client.CoreV1().Secrets(r.namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("another resource: %v", err)
		}
		refused.Remove()
		eventually(t, "the informer to sync, once it is let", c.informer.HasSynced)
	})
}
