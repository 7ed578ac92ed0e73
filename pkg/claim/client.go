package claim

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
	"warmpool.dev/controller/pkg/generated/clientset/versioned"
	typed "warmpool.dev/controller/pkg/generated/clientset/versioned/typed/warmpool/v1alpha1"
)

const (
	// requestTimeout is how long one request may take. An API server that is frozen
	// never answers.
	requestTimeout = 10 * time.Second
	// releaseTimeout is how long it is tried to delete a claim.
	releaseTimeout = 30 * time.Second
)

// Client takes Pods of the pools of one namespace. Safe for concurrent use.
type Client struct {
	namespace string
	claims    typed.PodClaimInterface
}

// New returns a client for the pools of a namespace. Many calls of Acquire at the same
// time share the limit of the clientset's requests per second: rest.Config has QPS.
func New(clientset versioned.Interface, namespace string) *Client {
	return &Client{namespace: namespace, claims: clientset.WarmpoolV1alpha1().PodClaims(namespace)}
}

// Options say which Pod to take, and for how long. Pool is required.
type Options struct {
	// Pool is the name of the WarmPool. While there is none of that name Acquire waits.
	Pool string
	// NamePrefix begins the claim's name, as far as there is room; a dash and ten
	// random characters follow. Default: Pool.
	NamePrefix string
	// Priority orders the claims that wait for the same pool: higher first.
	Priority int32
	// Timeout finishes a claim that has waited so long, with reason TimedOut. Other
	// than the end of the context it also holds when the program has died. It is
	// rounded up to seconds. 0: none.
	Timeout time.Duration
	// Lifetime is how long the Pod may be kept; then claim and Pod are deleted, whatever
	// has become of the program. It is rounded up to seconds. 0: as long as the pool's
	// claimLifetime says, or else until Release.
	Lifetime time.Duration
	// Labels and Annotations are set on the claim and on its Pod, where the downward
	// API shows them. Keys that begin with warmpool.dev/ are refused.
	Labels, Annotations map[string]string
}

// Acquire takes a Pod of a pool, and waits for it as long as ctx lasts; so give ctx a
// deadline, or Options a Timeout. Errors that may pass, such as an API server that
// can't be reached, are waited out. The caller calls Release on what it is given.
//
// With an error no claim is left. The error is
//   - ctx's, when ctx ended before the Pod was there; the text says what the claim waited
//     for. Acquire then returns when the claim is deleted, which takes milliseconds, and
//     up to a minute where the API server doesn't answer;
//   - a *FinishedError, when nothing more could come of the claim: it timed out, or
//     somebody deleted it;
//   - the API server's, when it refuses: invalid Options, a missing right, a quota.
//
// Should it be impossible to delete the claim, the error says that too, and names it.
func (c *Client) Acquire(ctx context.Context, options Options) (*Claim, error) {
	want := newPodClaim(options)
	created, err := c.create(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("acquire a Pod of pool %q: create claim %s: %w", options.Pool, want.Name, err)
	}
	claim, err := c.follow(ctx, created, isBound)
	if err == nil {
		// Bound in the moment in which ctx ended: nobody is there any more to use it.
		err = ctx.Err()
	}
	if err == nil {
		return newClaim(c, claim), nil
	}
	if waiting := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimBound); ctx.Err() != nil && waiting != nil {
		err = fmt.Errorf("%w: %s: %s", err, waiting.Reason, waiting.Message)
	}
	err = fmt.Errorf("acquire a Pod of pool %q: wait for claim %s: %w", options.Pool, claim.Name, err)
	return nil, errors.Join(err, c.release(context.WithoutCancel(ctx), claim.Name, claim.UID))
}

func isBound(claim *v1alpha1.PodClaim) bool { return claim.Status.Pod != nil }

// annotationAcquire holds a random text, by which a call of Acquire knows the claim that
// it has created when the answer was lost.
const annotationAcquire = v1alpha1.LabelPrefix + "acquire"

const (
	maxNameLength = 63 // a claim's name becomes a label of its Pod
	suffixLength  = 10
)

func newPodClaim(options Options) *v1alpha1.PodClaim {
	id := strings.ToLower(rand.Text())
	prefix := cmp.Or(options.NamePrefix, options.Pool)
	prefix = strings.TrimRight(prefix[:min(len(prefix), maxNameLength-1-suffixLength)], "-.")
	annotations := map[string]string{annotationAcquire: id}
	maps.Copy(annotations, options.Annotations)
	claim := &v1alpha1.PodClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        prefix + "-" + id[:suffixLength],
			Labels:      options.Labels,
			Annotations: annotations,
		},
		Spec: v1alpha1.PodClaimSpec{
			PoolName:       options.Pool,
			Priority:       options.Priority,
			TimeoutSeconds: int32(min(roundUp(options.Timeout)/time.Second, math.MaxInt32)),
		},
	}
	if options.Lifetime != 0 {
		claim.Spec.Lifetime = &metav1.Duration{Duration: roundUp(options.Lifetime)}
	}
	if len(options.Labels)+len(options.Annotations) > 0 {
		claim.Spec.PodMetadata = &v1alpha1.PodMetadata{Labels: options.Labels, Annotations: options.Annotations}
	}
	return claim
}

// roundUp rounds up to seconds: the API has no shorter timeout, and no fractions in a
// lifetime.
func roundUp(d time.Duration) time.Duration {
	if rest := d % time.Second; rest > 0 {
		return d - rest + time.Second
	}
	return d
}
