package faultproxy_test

// Connections that go dead or are cut, and API servers that are changed.

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/faultproxy"
)

// The environment variables with which client-go's pings are made fast are read when a
// client is made. Tests that set them can't be parallel.
func pingFast(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
}

func TestClientNoticesABlackHoleByItsPings(t *testing.T) {
	pingFast(t)
	r := newRig(t, modes[1])
	c := r.informer()
	hole := r.proxy.BlackHole(configMaps)
	if hole.Fired() != 1 {
		t.Fatalf("froze %d connections, want 1", hole.Fired())
	}
	r.create("a")
	// The watch in the hole is there still, for the proxy hears nothing of its end.
	if err := r.proxy.WaitOpenWatches(within(t, deadline), 2, configMaps); err != nil {
		t.Fatalf("the client didn't open another connection: %v", err)
	}
	c.wait("add a=1")
	hole.Release()
	eventually(t, "the end of the dead watch", func() bool { return len(r.proxy.OpenWatches(configMaps)) == 1 })
}

func TestClientNoticesNothingOfAFrozenWatchWhosePingsAreAnswered(t *testing.T) {
	pingFast(t)
	r := newRig(t, modes[1])
	c := r.informer()
	frozen := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.Freeze()})
	r.create("a")
	waitFired(t, frozen, 1)
	// Longer than a ping and its timeout.
	always(t, 3*time.Second, "the client saw something, or opened another watch", func() bool {
		return len(c.events()) == 0 && len(r.proxy.Log().Select(faultproxy.Match{Verb: "watch"})) == 1
	})
	frozen.Release()
	c.wait("add a=1")
}

func TestBlackHoleOverHTTP1StopsTheWatchAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[3])
	c := r.informer()
	hole := r.proxy.BlackHole(configMaps)
	if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
		t.Errorf("a write on another connection: %v", err)
	}
	always(t, 200*time.Millisecond, "the event came through the hole", func() bool { return len(c.events()) == 0 })
	hole.Release()
	c.wait("add a=1")
}

func TestInformerComesBackAfterAllConnectionsWereCut(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		c := r.informer()
		r.proxy.Cut()
		eventually(t, "the end of the watch", func() bool {
			open := r.proxy.OpenWatches(configMaps)
			return len(open) == 0 || open[0].ID > 2 // the first two are the list and the watch
		})
		r.create("a")
		c.wait("add a=1")
	})
}

func TestProxyTurnsToAnotherAPIServer(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Options{APIServers: 2})
	r := newRigAt(t, modes[0], cp)
	c := r.informer()
	if err := r.proxy.Retarget(configOf(t, cp.APIServers[1])); err != nil {
		t.Fatal(err)
	}
	r.proxy.EndWatches(faultproxy.Match{}, faultproxy.Closed())
	if err := cp.APIServers[0].Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.createThrough(within(t, deadline), "a"); err != nil {
		t.Errorf("a write: %v", err)
	}
	c.wait("add a=1")
	if err := cp.APIServers[0].Thaw(); err != nil {
		t.Fatal(err)
	}
}

func TestReadsReachOneAPIServerAndWritesAnother(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Options{APIServers: 2})
	r := newRigAt(t, modes[0], cp)
	c := r.informer()
	split := r.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: faultproxy.Writes}, Do: faultproxy.Elsewhere(configOf(t, cp.APIServers[1]))})
	if err := cp.APIServers[0].Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.createThrough(within(t, deadline), "a"); err != nil || split.Fired() != 1 {
		t.Errorf("a write, while the server that the proxy has for the rest is frozen: %v (sent elsewhere: %d)", err, split.Fired())
	}
	always(t, 200*time.Millisecond, "the event came from the server that is frozen", func() bool { return len(c.events()) == 0 })
	if err := cp.APIServers[0].Thaw(); err != nil {
		t.Fatal(err)
	}
	c.wait("add a=1")
	split.Remove()
	if _, err := r.createThrough(within(t, deadline), "b"); err != nil || split.Fired() != 1 {
		t.Errorf("a write after the rule: %v (sent elsewhere: %d)", err, split.Fired())
	}
}

func TestElsewhereCannotBeUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.Elsewhere(&rest.Config{Host: "https://[no address"})})
	if _, err := r.createThrough(within(t, deadline), "a"); !apierrors.IsInternalError(err) {
		t.Errorf("a write to an API server that has no address: %v, want an internal error", err)
	}
}

func TestCloseEndsWhatIsHeld(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.informer()
		held := r.proxy.Add(faultproxy.Rule{Match: creations, Skip: 1, Do: faultproxy.HoldRequest()})
		late := r.proxy.Add(faultproxy.Rule{Match: creations, Do: faultproxy.LateCommit(faultproxy.Hang())})
		r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.Freeze()})
		told := make(chan error, 2)
		for _, name := range []string{"late", "held"} {
			go func() {
				_, err := r.createThrough(within(t, deadline), name)
				told <- err
			}()
			if name == "late" {
				waitFired(t, late, 1)
			}
		}
		waitFired(t, held, 1)
		r.proxy.Close()
		for range 2 {
			if err := <-told; err == nil {
				t.Error("a held request was answered with success")
			}
		}
		if r.exists("late") || r.exists("held") {
			t.Error("a held request happened")
		}
	})
}

func TestClientsKeepTheirOwnToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	stranger := r.config
	stranger.BearerToken, stranger.BearerTokenFile = "nobody's", ""
	_, err := kubernetes.NewForConfigOrDie(stranger).CoreV1().ConfigMaps(r.namespace).List(t.Context(), metav1.ListOptions{})
	if err == nil {
		t.Error("a client with a wrong token was let in")
	}
}
