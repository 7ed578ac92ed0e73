package e2e

// Acquire where its context ends, or where answers are lost: one claim, or none.

import (
	"context"
	"net/http"
	"testing"
	"time"

	"warmpool.dev/controller/pkg/claim"
	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
)

func TestAcquireWhoseContextEndsLeavesNoClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// end has the context end at a moment of its choice.
		end func(t *testing.T, ns *environment.Namespace, proxy *faultproxy.Proxy, cancel func())
	}{
		{"while the claim waits", func(_ *testing.T, ns *environment.Namespace, _ *faultproxy.Proxy, cancel func()) {
			onlyClaim(ns)
			cancel()
		}},
		{"in the moment in which it is bound", func(t *testing.T, ns *environment.Namespace, proxy *faultproxy.Proxy, cancel func()) {
			waits := func(d faultproxy.Delivery) bool { return d.Type == "MODIFIED" }
			if err := proxy.WaitDeliveries(inTime(t), 1, waits); err != nil {
				t.Error(err)
			}
			proxy.Add(faultproxy.Rule{Match: podClaims, Do: faultproxy.OnEvent(func(*faultproxy.Event) { cancel() })})
			ns.StartKubelet()
		}},
		{"while its watch is silent, and it is bound", func(_ *testing.T, ns *environment.Namespace, proxy *faultproxy.Proxy, cancel func()) {
			proxy.Add(faultproxy.Rule{Match: podClaims, Do: faultproxy.Freeze()})
			waiting := onlyClaim(ns)
			ns.StartKubelet()
			ns.WaitBound(waiting.Name)
			cancel()
		}},
		{"before the create is answered", func(_ *testing.T, ns *environment.Namespace, proxy *faultproxy.Proxy, cancel func()) {
			held := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "create"}, Do: faultproxy.HoldAnswer()})
			onlyClaim(ns)
			cancel()
			held.Release()
		}},
		{"after the create's answer was lost", func(t *testing.T, ns *environment.Namespace, proxy *faultproxy.Proxy, cancel func()) {
			proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "create"}, Do: faultproxy.LoseAnswer(faultproxy.Reset())})
			down := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "get"}, Do: faultproxy.Refuse(faultproxy.Unavailable())})
			if err := down.WaitFired(inTime(t), 2); err != nil {
				t.Error(err)
			}
			onlyClaim(ns)
			cancel()
			down.Remove()
		}},
		{"before a create without an answer has happened", func(t *testing.T, _ *environment.Namespace, proxy *faultproxy.Proxy, cancel func()) {
			create := faultproxy.Match{Verb: "create"}
			proxy.Add(faultproxy.Rule{Match: create, Do: faultproxy.Before(func(*faultproxy.Exchange) { cancel() })})
			late := proxy.Add(faultproxy.Rule{Match: create, Do: faultproxy.LateCommit(faultproxy.Reset())})
			notFound := func(r *faultproxy.Request) bool { return r.Told == http.StatusNotFound }
			if _, err := proxy.WaitRequests(inTime(t), 3, faultproxy.Match{Verb: "get"}, notFound); err != nil {
				t.Error(err)
			}
			late.Release()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.StartController()
			ns.CreatePool(environment.Pool("runners", 0))
			client, proxy := claimClient(t, ns)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := acquire(ctx, client, claim.Options{Pool: "runners"})
			c.end(t, ns, proxy, cancel)
			r := receive(t, result)
			t.Log(r.err)
			failed(t, ns, r, context.Canceled)
			ns.WaitPods(0)
		})
	}
}

func TestAcquireCreatesOneClaimWhateverBecomesOfTheAnswer(t *testing.T) {
	t.Parallel()
	for _, reply := range []faultproxy.Reply{faultproxy.Reset(), faultproxy.Timeout(), faultproxy.InternalError(), faultproxy.TooManyRequests(time.Second)} {
		t.Run(reply.String(), func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.Judge()
			ns.StartKubelet()
			ns.StartController()
			ns.CreatePool(environment.Pool("runners", 1))
			client, proxy := claimClient(t, ns)
			proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "create"}, Times: 1, Do: faultproxy.LoseAnswer(reply)})
			// The first look may fail as well.
			proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verb: "get"}, Times: 1, Do: faultproxy.Refuse(faultproxy.Unavailable())})
			got, err := client.Acquire(t.Context(), claim.Options{Pool: "runners"})
			if err != nil {
				t.Fatal(err)
			}
			if claims := ns.Claims(); len(claims) != 1 || claims[got.Name] == nil || claims[got.Name].UID != got.UID {
				t.Errorf("Acquire returned claim %s, there are %v", got.Name, claims)
			}
			ns.WaitPool("runners", 1, 1)
			t.Logf("the requests are %v", requests(proxy))
		})
	}
}
