package freshness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// chaos is a random history: some keys, each with objects that it alone writes, and an
// API server whose watches lag, freeze and break and whose answers get lost.
type chaos struct {
	*patient
	t    *testing.T
	seed uint64

	mu   sync.Mutex
	rand *rand.Rand
	// truth is the version at which the API server has each object, "" once it was
	// deleted there.
	truth map[string]string
	// worked counts reconciles.
	worked int
	// late are the writes under way that nobody waits for.
	late sync.WaitGroup
}

// errLost is what a write without an answer returns.
var errLost = errors.New("the answer was lost")

func (c *chaos) chance(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n) == 0
}

func (c *chaos) number(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

// commit carries a write out at the API server, unless its precondition isn't met.
func (c *chaos) commit(intent Intent) (version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := intent.Name
	switch {
	case c.truth[name] != intent.ResourceVersion:
		return "" // conflict, or not found, or already there
	case intent.Verb == "delete":
		c.source.remove(name)
		c.truth[name] = ""
		return "" // as for most resources, the answer has no version
	default:
		c.truth[name] = c.source.put(name).ResourceVersion
		return c.truth[name]
	}
}

// reconcile checks that the cache holds all that was written under the key, and then
// writes something.
func (c *chaos) reconcile(ctx context.Context, key string) (Result, error) {
	snapshot := c.snapshot(key)
	if err := Confirm(ctx, snapshot, func() []metav1.Object { return c.snapshot(key) }); err != nil {
		return Result{}, err
	}
	versions := map[string]string{}
	for _, object := range snapshot {
		versions[object.GetName()] = object.GetResourceVersion()
	}
	c.mu.Lock()
	c.worked++
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", key, i)
		if versions[name] != c.truth[name] {
			c.t.Errorf("seed %d: key %s was let through although its %s is at version %q in the cache and %q at the API server", c.seed, key, name, versions[name], c.truth[name])
		}
	}
	c.mu.Unlock()
	return Result{}, c.write(key, fmt.Sprintf("%s-%d", key, c.number(3)))
}

// snapshot returns what the cache holds of a key's objects.
func (c *chaos) snapshot(key string) []metav1.Object {
	var objects []metav1.Object
	for i := range 3 {
		if obj, ok, _ := c.feed.Informer().GetStore().GetByKey(fmt.Sprintf("ns/%s-%d", key, i)); ok {
			objects = append(objects, obj.(*corev1.ConfigMap))
		}
	}
	return objects
}

// write sends a write with a random fate.
func (c *chaos) write(key, name string) error {
	remove := c.chance(4)
	intent := Intent{Verb: "create", Resource: configMaps, Namespace: "ns", Name: name, Fingerprint: uint64(c.number(1 << 30))}
	if obj, ok, _ := c.feed.Informer().GetStore().GetByKey("ns/" + name); ok {
		object := obj.(*corev1.ConfigMap)
		intent.Verb, intent.UID, intent.ResourceVersion = "update", object.UID, object.ResourceVersion
		if remove {
			intent.Verb = "delete"
		}
	} else if remove {
		return nil
	}
	entry, err := c.ledger.Begin(key, intent)
	if err != nil {
		return err
	}
	elapse(time.Duration(c.number(50)) * time.Millisecond)
	switch c.number(8) {
	case 0: // lost on the way there
		c.ledger.Doubt(entry)
		return errLost
	case 1: // lost on the way back
		c.commit(intent)
		c.ledger.Doubt(entry)
		return errLost
	case 2: // given up by the client, and committed later
		c.ledger.Doubt(entry)
		late := time.Duration(c.number(int(DefaultWriteTimeout - 100*time.Millisecond)))
		c.late.Go(func() {
			elapse(late)
			c.commit(intent)
		})
		return errLost
	case 3:
		c.ledger.Refuse(entry)
		return errors.New("refused")
	default:
		version := c.commit(intent)
		elapse(time.Duration(c.number(100)) * time.Millisecond)
		c.ledger.Settle(entry, version)
		return nil
	}
}

// disturb does something to the watches.
func (c *chaos) disturb() {
	switch c.number(8) {
	case 0:
		c.source.hold()
		elapse(time.Duration(c.number(3000)) * time.Millisecond)
		c.source.release()
	case 1:
		c.source.freeze()
	case 2:
		c.feed.ForceRelist()
	case 3:
		c.feed.Bounce()
	case 4:
		c.source.progress()
	case 5:
		c.source.advance()
	case 6: // an old event comes once more
		c.source.mu.Lock()
		history := c.source.history
		c.source.mu.Unlock()
		if len(history) > 0 {
			if event := history[c.number(len(history))].Event; event.Type != watch.Deleted {
				c.source.inject(event)
			}
		}
	}
}

// work runs a worker of the queue.
func (c *chaos) work(ctx context.Context, reconcile Reconciler[string]) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if _, err := reconcile(ctx, key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{patient: newPatient(t), t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), truth: map[string]string{}}
	var wg sync.WaitGroup
	reconcile := c.backlog.Middleware(c.reconcile)
	for range 3 {
		wg.Go(func() { c.work(t.Context(), reconcile) })
	}
	t.Cleanup(func() {
		c.queue.ShutDown()
		wg.Wait()
		c.late.Wait()
	})
	return c
}

func TestWhateverHappensNoKeyIsLetThroughToAnOldCacheAndNoneIsParkedForGood(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	worked, doubts := 0, 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t, seed)
			for range 150 {
				c.queue.Add(fmt.Sprint("key-", c.number(5)))
				elapse(time.Duration(c.number(400)) * time.Millisecond)
				if c.chance(6) {
					c.disturb()
				}
			}
			elapse(2 * time.Minute)
			synctest.Wait()
			for _, p := range c.backlog.Parked() {
				t.Errorf("seed %d: key %s is parked still, since it is %s", seed, p.Key, p.Verdict.Cause)
			}
			c.mu.Lock()
			worked += c.worked
			c.mu.Unlock()
			doubts += int(counterValue(t, c.metrics.writes.WithLabelValues("configmaps", "create", "in_doubt")))
			doubts += int(counterValue(t, c.metrics.writes.WithLabelValues("configmaps", "update", "in_doubt")))
		})
	}
	t.Logf("%d histories, %d reconciles, %d lost answers", seeds, worked, doubts)
	if doubts == 0 || worked == 0 {
		t.Error("nothing happened, so this test shows nothing")
	}
}
