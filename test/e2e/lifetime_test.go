package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/test/environment"
)

// late is how long after its time something may happen that is due. It is a multiple of
// what an unloaded machine needs, and much less than any interval of polling.
const late = 3 * time.Second

func livesFor(d time.Duration) func(*v1alpha1.PodClaim) {
	return func(c *v1alpha1.PodClaim) { c.Spec.Lifetime = &metav1.Duration{Duration: d} }
}

// A claim is deleted when its lifetime is over, to the second and not before, and its Pod
// goes with it. What the claim names is capped by what its pool allows, and what it doesn't
// name is the pool's default.
func TestAClaimIsDeletedWhenItsLifetimeIsOver(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 2, func(p *v1alpha1.WarmPool) {
		p.Spec.ClaimLifetime = &v1alpha1.ClaimLifetime{
			Default: &metav1.Duration{Duration: 4 * time.Second},
			Maximum: &metav1.Duration{Duration: 6 * time.Second},
		}
	}))
	ns.CreatePool(environment.Pool("unlimited", 1))
	ns.WaitPool("runners", 2, 0)
	lifetimes := map[string]time.Duration{"short": 3 * time.Second, "default": 4 * time.Second, "capped": 6 * time.Second}
	ns.CreateClaim(environment.Claim("short", "runners", livesFor(3*time.Second)))
	ns.CreateClaim(environment.Claim("default", "runners"))
	ns.CreateClaim(environment.Claim("capped", "runners", livesFor(time.Hour)))
	ns.CreateClaim(environment.Claim("endless", "unlimited"))
	ns.WaitBound("short", "default", "capped", "endless")
	due := map[string]time.Time{}
	for name, claim := range ns.Claims() {
		bound, expires := claim.Status.BoundTime, claim.Status.ExpirationTime
		if name == "endless" {
			if expires != nil {
				t.Errorf("claim %s, which has no lifetime, expires at %s", name, expires)
			}
			continue
		}
		if expires == nil || expires.Sub(bound.Time) != lifetimes[name] {
			t.Fatalf("claim %s, bound at %s, expires at %s, want %s later", name, bound, expires, lifetimes[name])
		}
		due[name] = expires.Time
	}
	deleted := deletedInTime(t, ns, due)
	if deleted["default"].After(deleted["capped"]) {
		t.Errorf("the claims were deleted at %v", deleted)
	}
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(4)
	if claims := ns.Claims(); len(claims) != 1 || claims["endless"] == nil {
		t.Errorf("there are %d claims, want the endless one alone", len(claims))
	}
	// Its user hears why it went.
	ns.Eventually("an event that tells of the end of claim short", func() error {
		events := eventsAbout(t, env, ns, "PodClaim", "short")
		for _, e := range events {
			if e.Reason == v1alpha1.ReasonExpired && e.Type == "Normal" {
				return nil
			}
		}
		return fmt.Errorf("there are %v", events)
	})
}

// The times are in the objects: a controller that starts knows what is due, and at once
// does what has been due while none ran.
func TestWhatIsDueIsDoneInTimeAcrossARestart(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	controller := ns.StartController()
	ns.CreatePool(environment.Pool("runners", 2))
	ns.CreatePool(environment.Pool("empty", 0, func(p *v1alpha1.WarmPool) { p.Spec.Paused = true }))
	ns.WaitPool("runners", 2, 0)
	waiting := ns.CreateClaim(environment.Claim("waiting", "empty", func(c *v1alpha1.PodClaim) { c.Spec.TimeoutSeconds = 10 }))
	ns.CreateClaim(environment.Claim("past", "runners", livesFor(time.Second)))
	ns.CreateClaim(environment.Claim("future", "runners", livesFor(10*time.Second)))
	ns.WaitBound("future") // the other one may be over by now
	ns.WaitCondition("waiting", "Bound", "False", "PoolExhausted")
	controller.Kill()
	killed := time.Now()
	future := ns.Claim("future").Status.ExpirationTime.Time
	ns.Eventually("the time of the first claim to be over", func() error {
		if time.Since(killed) < time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	ns.StartController()
	started := time.Now()
	ns.Eventually("the claim that was due while no controller ran to be gone", func() error {
		if ns.Claims()["past"] != nil {
			return errors.New("it is there")
		}
		return nil
	})
	if started.Before(future) {
		deletedInTime(t, ns, map[string]time.Time{"future": future})
	}
	timesOut := waiting.CreationTimestamp.Add(10 * time.Second)
	finished := ns.WaitCondition("waiting", "Finished", "True", "TimedOut").LastTransitionTime
	if started.Before(timesOut) && (finished.Time.Before(timesOut) || finished.After(timesOut.Add(late))) {
		t.Errorf("the claim that waits timed out at %s, want %s", finished, timesOut)
	}
	ns.WaitPool("runners", 2, 0)
	ns.WaitPods(2)
}

// deletedInTime waits until the controller has deleted the claims, checks that it did so
// when each was due and not before, and returns when.
func deletedInTime(t *testing.T, ns *environment.Namespace, due map[string]time.Time) map[string]time.Time {
	t.Helper()
	deleted := map[string]time.Time{}
	ns.Eventually(fmt.Sprintf("%d claims to be deleted by the controller", len(due)), func() error {
		for name := range due {
			if ns.Claims()[name] != nil {
				return fmt.Errorf("claim %s is there", name)
			}
		}
		return nil
	})
	writes := slices.DeleteFunc(ns.SettledWrites(), func(w controlplane.Write) bool { return w.Kind() != "delete podclaims" || w.Code >= 300 })
	for _, w := range writes {
		deleted[w.Name] = w.Time
	}
	for name, at := range due {
		if took := deleted[name].Sub(at); took < 0 || took > late {
			t.Errorf("claim %s was due at %s and deleted %s after it (zero: never, by the controller)", name, at, took)
		}
	}
	return deleted
}
