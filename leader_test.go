package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/freshness"
)

var leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")

// election is one replica that stands for election in namespace ci.
type election struct {
	api     *apiServer
	options leaderElectionOptions
}

func newElection() *election {
	return &election{
		api: newAPIServer(),
		options: leaderElectionOptions{
			enabled: true, namespace: "ci",
			leaseDuration: 15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: 2 * time.Second,
		},
	}
}

// lead calls lead in the background.
func (e *election) lead(t *testing.T, ctx context.Context, run func(context.Context) error) (ended <-chan error) {
	t.Helper()
	lock, err := newLock(e.options, e.api.kube)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- lead(ctx, e.options, freshness.NewTerm(connected{lock}, time.Second, nil), run) }()
	return done
}

// connected makes the lock refuse a context that has ended, as a client with a connection
// does and the fake one doesn't.
type connected struct{ resourcelock.Interface }

func (c connected) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return c.Interface.Get(ctx)
}

func (c connected) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Interface.Create(ctx, record)
}

func (c connected) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Interface.Update(ctx, record)
}

// holder is who has the lease; "" is nobody.
func (e *election) holder(t *testing.T) string {
	t.Helper()
	object, err := e.api.pods.Get(leaseResource, "ci", "warmpool-controller")
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(object.(*coordinationv1.Lease).Spec.HolderIdentity, "")
}

// giveTo makes somebody else the holder of the lease, who has renewed it just now.
func (e *election) giveTo(t *testing.T, holder string) {
	t.Helper()
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "warmpool-controller"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), AcquireTime: &now, RenewTime: &now,
		},
	}
	err := e.api.pods.Update(leaseResource, lease, "ci")
	if apierrors.IsNotFound(err) {
		err = e.api.pods.Create(leaseResource, lease, "ci")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moment is when something happened, or nil. It is safe for concurrent use.
type moment struct{ atomic.Pointer[time.Time] }

func (m *moment) isNow() {
	now := time.Now()
	m.Store(&now)
}

// untilDone runs until ctx ends.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func neverRun(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("it led, without the lease")
		return nil
	}
}

func TestAReplicaLeadsOnlyOnceItHasTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		e.giveTo(t, "another")
		ctx, end := context.WithCancel(t.Context())
		var leads moment
		ended := e.lead(t, ctx, func(ctx context.Context) error {
			leads.isNow()
			if holder := e.holder(t); holder == "" || holder == "another" {
				t.Errorf("it leads while the lease is %q's", holder)
			}
			return untilDone(ctx)
		})
		elapse(14 * time.Second)
		if leads.Load() != nil {
			t.Error("it leads although the other's lease hasn't expired")
		}
		elapse(10 * time.Second)
		if leads.Load() == nil {
			t.Error("it doesn't lead although the other's lease has expired")
		}
		end()
		if err := <-ended; err != nil {
			t.Errorf("got %v at a normal end", err)
		}
	})
}

func TestTheLeaseIsHeldUntilRunHasReturnedAndThenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		ctx, end := context.WithCancel(t.Context())
		finish := make(chan struct{})
		ended := e.lead(t, ctx, func(ctx context.Context) error {
			<-ctx.Done()
			<-finish // the last write takes its time
			return nil
		})
		elapse(time.Minute)
		leader := e.holder(t)
		if leader == "" {
			t.Fatal("nobody has the lease")
		}
		end()
		elapse(time.Minute) // longer than an unrenewed lease lasts
		if got := e.holder(t); got != leader {
			t.Errorf("the lease is %q's although run hasn't returned, want %q", got, leader)
		}
		select {
		case err := <-ended:
			t.Errorf("lead returned %v before run", err)
		default:
		}

		next := newElection()
		next.api = e.api
		nextCtx, endNext := context.WithCancel(t.Context())
		var nextLeads moment
		nextEnded := next.lead(t, nextCtx, func(ctx context.Context) error {
			nextLeads.isNow()
			return untilDone(ctx)
		})
		elapse(time.Minute)
		if nextLeads.Load() != nil {
			t.Error("a second replica leads although the first is writing still")
		}

		close(finish)
		given := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("got %v at a normal end", err)
		}
		elapse(10 * time.Second)
		// Its retry period of 2 s, and client-go's jitter on it of up to 1.2 times as much.
		if at := nextLeads.Load(); at == nil || at.Sub(given) > 5*time.Second {
			t.Errorf("the lease was given up at %s, and the next leader took over at %v; want it within 5s", given, at)
		}
		endNext()
		if err := <-nextEnded; err != nil {
			t.Errorf("got %v at a normal end", err)
		}
		if got := e.holder(t); got != "" {
			t.Errorf("the lease is %q's when all have ended", got)
		}
	})
}

func TestAnErrorOfRunIsReturnedAndTheLeaseGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		failure := errors.New("the caches aren't synced")
		if err := <-e.lead(t, t.Context(), func(context.Context) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("got %v, want the error of run", err)
		}
		if got := e.holder(t); got != "" {
			t.Errorf("the lease is %q's", got)
		}
	})
}

func TestAStandbyEndsWhenItIsAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		e.giveTo(t, "another")
		ctx, end := context.WithCancel(t.Context())
		ended := e.lead(t, ctx, neverRun(t))
		elapse(5 * time.Second)
		end()
		asked := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("got %v at a normal end", err)
		}
		if took := time.Since(asked); took != 0 {
			t.Errorf("it took %s", took)
		}
		if got := e.holder(t); got != "another" {
			t.Errorf("the lease is %q's, want the other's", got)
		}
	})
}

func TestAReplicaThatIsAskedToEndWhileItGetsTheLeaseGivesItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		ctx, end := context.WithCancel(t.Context())
		e.api.refuse(func(action clienttesting.Action) error {
			if action.GetVerb() == "create" && action.GetResource() == leaseResource {
				end()
				// What ends the election with ctx runs on a goroutine of its own.
				<-time.After(time.Second)
			}
			return nil
		})
		var returned moment
		err := <-e.lead(t, ctx, func(ctx context.Context) error {
			defer returned.isNow()
			<-time.After(time.Second)
			return untilDone(ctx)
		})
		if err != nil {
			t.Errorf("got %v at a normal end", err)
		}
		if returned.Load() == nil {
			t.Error("lead returned before run")
		}
		if got := e.holder(t); got != "" {
			t.Errorf("the lease is %q's, which is gone", got)
		}
		settle()
	})
}

func TestALeaderThatCannotRenewStopsBeforeAnotherMayLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		var stopped moment
		ended := e.lead(t, t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			stopped.isNow()
			return nil
		})
		elapse(time.Minute)
		leader := e.holder(t)
		e.api.refuse(refusing("update leases", unavailable))
		cut := time.Now()
		if err := <-ended; !errors.Is(err, errLostLease) {
			t.Errorf("got %v, want errLostLease", err)
		}
		settle()
		if at := stopped.Load(); at == nil || at.Sub(cut) >= 15*time.Second {
			t.Errorf("the last renewal was before %s, and it led until %v; want less than the lease's 15s", cut, at)
		}
		if got := e.holder(t); got != leader {
			t.Errorf("the lease is %q's: only a leader that has stopped may give it up", got)
		}
	})
}

// TestALeaderWhoseLeaseWasTakenLeavesItAlone is repeated: run returns just when the
// election ends, and in either order it is a lease that was lost.
func TestALeaderWhoseLeaseWasTakenLeavesItAlone(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			e := newElection()
			var stopped moment
			ended := e.lead(t, t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				stopped.isNow()
				return nil
			})
			elapse(time.Minute)
			e.giveTo(t, "another")
			if err := <-ended; !errors.Is(err, errLostLease) {
				t.Errorf("got %v, want errLostLease", err)
			}
			settle()
			if stopped.Load() == nil {
				t.Error("it goes on leading")
			}
			if got := e.holder(t); got != "another" {
				t.Errorf("the lease is %q's, want the other's", got)
			}
		})
	}
}

func TestALeaseThatWasTakenWhileRunEndedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		ctx, end := context.WithCancel(t.Context())
		ended := e.lead(t, ctx, func(ctx context.Context) error {
			<-ctx.Done()
			e.giveTo(t, "another")
			return nil
		})
		elapse(time.Second)
		end()
		if err := <-ended; err != nil {
			t.Errorf("got %v at a normal end", err)
		}
		if got := e.holder(t); got != "another" {
			t.Errorf("the lease is %q's, want the other's", got)
		}
	})
}

func TestAnElectionThatCannotWorkSaysSoAtOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		refusal error
		want    []string
	}{{
		name:    "the lease may not be read",
		refusal: apierrors.NewForbidden(leaseResource.GroupResource(), "warmpool-controller", errors.New("no role")),
		want:    []string{"read the lease ci/warmpool-controller", "no role", "kubectl apply -f artifacts/deploy", "--leader-elect=false"},
	}, {
		name:    "the API server can't be reached",
		refusal: errors.New("connection refused"),
		want:    []string{"read the lease ci/warmpool-controller", "connection refused", "check that the API server can be reached"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection()
				e.api.refuse(refusing("get leases", func(string) error { return test.refusal }))
				err := <-e.lead(t, t.Context(), neverRun(t))
				if !errors.Is(err, test.refusal) {
					t.Fatalf("got %v, want %v", err, test.refusal)
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error doesn't contain %q: %v", want, err)
					}
				}
			})
		})
	}
}

func TestWithoutLeaderElectionNoLeaseIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection()
		e.options.enabled = false
		ran := false
		err := <-e.lead(t, t.Context(), func(context.Context) error { ran = true; return nil })
		if err != nil || !ran {
			t.Errorf("got %v, and run was called: %t", err, ran)
		}
		if got := e.api.kube.Actions(); len(got) != 0 {
			t.Errorf("got requests %v, want none", got)
		}
	})
}
