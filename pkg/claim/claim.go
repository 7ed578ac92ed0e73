package claim

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// Claim is a PodClaim that has its Pod. Its fields are as they were when the Pod was
// handed out. Its methods are safe for concurrent use.
type Claim struct {
	// Namespace, Name and UID are the PodClaim's.
	Namespace, Name string
	UID             types.UID
	// Pod is the Pod, for good: it is never replaced by another one.
	Pod v1alpha1.PodReference
	// PodIPs are the Pod's addresses, the primary one first.
	PodIPs []string
	// NodeName is the node that the Pod runs on.
	NodeName string
	// Expiration is when claim and Pod are deleted. Zero: never.
	Expiration time.Time

	client *Client
	bound  *v1alpha1.PodClaim
}

func newClaim(client *Client, bound *v1alpha1.PodClaim) *Claim {
	claim := &Claim{
		Namespace: client.namespace,
		Name:      bound.Name,
		UID:       bound.UID,
		Pod:       *bound.Status.Pod,
		NodeName:  bound.Status.NodeName,
		client:    client,
		bound:     bound,
	}
	for _, ip := range bound.Status.PodIPs {
		claim.PodIPs = append(claim.PodIPs, ip.IP)
	}
	if expiration := bound.Status.ExpirationTime; expiration != nil {
		claim.Expiration = expiration.Time
	}
	return claim
}

// Release deletes the claim, and with it the Pod. It may be called again, and it is no
// error when the claim is gone already; another claim of the same name is never touched.
// Errors that may pass are waited out for as long as ctx lasts, and at most 30 seconds:
// give it a context that hasn't ended, such as context.WithoutCancel(ctx). An error
// tells that claim and Pod may still be there; Release may then be called again.
func (c *Claim) Release(ctx context.Context) error {
	return c.client.release(ctx, c.Name, c.UID)
}

// Wait waits until the claim is over: its Pod ended or was lost, its lifetime ended, or
// somebody deleted it. It returns the *FinishedError that says so; ctx's error, when ctx
// ended first; or the API server's, when it refuses the watch. It waits by a watch, as
// Acquire does, and it doesn't release the claim.
func (c *Claim) Wait(ctx context.Context) error {
	_, err := c.client.follow(ctx, c.bound, never)
	return fmt.Errorf("wait for the end of claim %s: %w", c.Name, err)
}

func never(*v1alpha1.PodClaim) bool { return false }
