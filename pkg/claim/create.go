package claim

// One claim for each call of Acquire, also where answers are lost. The client chooses
// the name, so that a create may be sent again: it can happen once.

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

// doubtTimeout is how long a create without an answer may be on its way. One that
// hasn't happened by then is taken for lost.
const doubtTimeout = 10 * time.Second

// create creates the claim, and tries for as long as ctx lasts. With an error there is
// no claim.
func (c *Client) create(ctx context.Context, want *v1alpha1.PodClaim) (*v1alpha1.PodClaim, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inDoubt := false
	for delay := newDelay(); ; {
		claim, err := c.createOnce(ctx, want)
		if err == nil {
			return claim, nil
		}
		inDoubt = inDoubt || unanswered(err)
		if inDoubt || apierrors.IsAlreadyExists(err) { // client-go too repeats what was refused for a while
			found, findErr := c.find(context.WithoutCancel(ctx), want)
			if found != nil {
				return found, nil
			}
			if findErr != nil {
				err = findErr // not known yet, whatever the create was told
			}
		}
		if passes(err) && pause(ctx, delay()) {
			continue
		}
		if ctx.Err() != nil {
			err = stopped(ctx, err)
		}
		if inDoubt {
			err = errors.Join(err, c.withdraw(ctx, want))
		}
		return nil, err
	}
}

// createOnce isn't cut off by the end of ctx: its answer tells what there is to delete.
func (c *Client) createOnce(ctx context.Context, want *v1alpha1.PodClaim) (*v1alpha1.PodClaim, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return c.claims.Create(ctx, want, metav1.CreateOptions{})
}

// find returns the claim that was created from want, or nil if there is none.
func (c *Client) find(ctx context.Context, want *v1alpha1.PodClaim) (*v1alpha1.PodClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	claim, err := c.claims.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find out whether it was created: %w", err)
	case claim.Annotations[annotationAcquire] != want.Annotations[annotationAcquire]:
		return nil, nil // somebody else's
	}
	return claim, nil
}

// withdraw deletes the claim that may have been created from want, or may still be.
func (c *Client) withdraw(ctx context.Context, want *v1alpha1.PodClaim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doubtTimeout)
	defer cancel()
	for delay := newDelay(); ; {
		claim, err := c.find(ctx, want)
		switch {
		case claim != nil:
			return c.release(context.WithoutCancel(ctx), claim.Name, claim.UID)
		case passes(err) && pause(ctx, delay()):
			// It is looked for again, also when there was none: it may come yet.
		case err != nil:
			return fmt.Errorf("claim %s may have been created: %w", want.Name, err)
		default:
			return nil
		}
	}
}

// release deletes a claim, if it is still there and has the uid. It tries for as long as
// ctx lasts, and at most for releaseTimeout.
func (c *Client) release(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for delay := newDelay(); ; {
		err := c.deleteOnce(ctx, name, uid)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return nil // it is going, or gone, or another one of its name is there
		case passes(err) && pause(ctx, delay()):
			// It is tried again.
		default:
			return fmt.Errorf("delete claim %s: %w", name, err)
		}
	}
}

func (c *Client) deleteOnce(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.claims.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}
