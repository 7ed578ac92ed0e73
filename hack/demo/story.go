package main

// The story: a pool fills, claims are bound, the pool refills. Each step is printed as
// it happens, and has a deadline.

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// The pool of artifacts/examples/warmpool.yaml, and how many claims take from it.
const (
	namespace    = metav1.NamespaceDefault
	poolManifest = "artifacts/examples/warmpool.yaml"
	poolName     = "runners"
	poolSize     = 5
	claimCount   = 3
)

// Deadlines: many times what each step takes on an unloaded machine.
const (
	leadDeadline  = 30 * time.Second
	fillDeadline  = time.Minute
	bindDeadline  = 30 * time.Second
	quietDeadline = 30 * time.Second
)

// claim is what the demo saw of one PodClaim.
type claim struct {
	name  string
	pod   string    // the Pod that it is bound to; empty: none yet
	asked time.Time // right before the request that created it
	bound time.Time // when the watch told that it is Bound
}

// latency is the time from before the creation to the news that it is Bound.
func (c *claim) latency() time.Duration { return c.bound.Sub(c.asked) }

// outcome is what the story came to.
type outcome struct {
	claims []*claim
	// Writes of the controller, its lease apart.
	filling, claiming []controlplane.Write
	lease             []controlplane.Write
	// rest is how long it was watched after all was done, resting what it wrote
	// meanwhile.
	rest    time.Duration
	resting []controlplane.Write
}

// play plays the story, shows what it came to, and returns an error if that isn't
// what was promised.
func (s *stage) play(ctx context.Context, rest time.Duration) error {
	var o outcome
	if err := s.fill(ctx); err != nil {
		return err
	}
	before, err := s.quiet(ctx)
	if err != nil {
		return err
	}
	if o.claims, err = s.claimAndRefill(ctx); err != nil {
		return err
	}
	after, err := s.quiet(ctx)
	if err != nil {
		return err
	}
	o.filling, o.claiming = before.product, after.product[len(before.product):]
	final := after
	if rest > 0 {
		if final, err = s.watchRest(ctx, rest); err != nil {
			return err
		}
	}
	o.rest, o.resting, o.lease = rest, final.product[len(after.product):], final.lease
	s.show(o.summary())
	return s.verdict(ctx, &o)
}

// fill creates the pool and waits until it is full.
func (s *stage) fill(ctx context.Context) error {
	s.chapter(fmt.Sprintf("A pool of %d fills", poolSize))
	if err := s.kubectl(ctx, "apply", "-f", poolManifest); err != nil {
		return err
	}
	return s.waitForPool(ctx, 0)
}

// waitForPool waits until the pool has all its idle Pods ready and the given number
// claimed, and tells of each change.
func (s *stage) waitForPool(ctx context.Context, claimed int32) error {
	ctx, cancel := within(ctx, fillDeadline)
	defer cancel()
	pools, err := s.warmpool.WarmpoolV1alpha1().WarmPools(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", poolName).String(),
	})
	if err != nil {
		return fmt.Errorf("watch the pool %s: %w", poolName, err)
	}
	last := ""
	err = follow(ctx, pools, func(pool *v1alpha1.WarmPool) bool {
		status := pool.Status
		line := fmt.Sprintf("pool %s: %d of %d ready, %d claimed, %d claims waiting",
			poolName, status.ReadyReplicas, poolSize, status.ClaimedReplicas, status.PendingClaims)
		if line != last {
			s.say("%s", line)
		}
		last = line
		return status.ReadyReplicas == poolSize && status.ClaimedReplicas == claimed && status.PendingClaims == 0
	})
	if err != nil {
		return fmt.Errorf("wait until the pool is full with %d claimed: %w (last seen: %s)", claimed, err, last)
	}
	return nil
}

// claimAndRefill creates the claims and waits until they are bound and the pool is
// full again. The pool is watched meanwhile, so that the lines come in the order in
// which things happen.
func (s *stage) claimAndRefill(ctx context.Context) ([]*claim, error) {
	s.chapter(fmt.Sprintf("%d claims, created at once", claimCount))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	refilled := make(chan error, 1)
	go func() { refilled <- s.waitForPool(ctx, claimCount) }()
	claims, err := s.bind(ctx)
	if err != nil {
		cancel()
	}
	if notRefilled := <-refilled; err == nil {
		err = notRefilled
	}
	return claims, err
}

// bind creates the claims at once and waits until all are Bound. Its watch is open
// before the first is created: a latency ends with the event's arrival, not with the
// next look.
func (s *stage) bind(ctx context.Context) ([]*claim, error) {
	ctx, done := within(ctx, bindDeadline)
	defer done()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	events, err := s.warmpool.WarmpoolV1alpha1().PodClaims(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch the claims: %w", err)
	}
	claims, byName := make([]*claim, claimCount), map[string]*claim{}
	for i := range claims {
		claims[i] = &claim{name: fmt.Sprintf("build-%d", i+1)}
		byName[claims[i].name] = claims[i]
	}
	for _, c := range claims {
		c.asked = s.clock.Now()
		go func() {
			if err := s.create(ctx, c.name); err != nil {
				giveUp(err)
			}
		}()
	}
	bound := 0
	err = follow(ctx, events, func(news *v1alpha1.PodClaim) bool {
		now := s.clock.Now()
		if c := byName[news.Name]; c.pod == "" && meta.IsStatusConditionTrue(news.Status.Conditions, v1alpha1.ClaimBound) {
			c.pod, c.bound = news.Status.Pod.Name, now
			s.say("claim %s is bound to Pod %s, after %s", c.name, c.pod, milliseconds(c.latency()))
			bound++
		}
		return bound == claimCount
	})
	if err != nil {
		return nil, fmt.Errorf("wait until the claims are bound: %w (%d of %d are)", err, bound, claimCount)
	}
	return claims, nil
}

// create creates one claim.
func (s *stage) create(ctx context.Context, name string) error {
	claim := &v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PodClaimSpec{PoolName: poolName},
	}
	if _, err := s.warmpool.WarmpoolV1alpha1().PodClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the claim %s: %w", name, err)
	}
	return nil
}

// within bounds a step. Its cause says which bound was reached.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it hasn't happened within %s", limit))
}
