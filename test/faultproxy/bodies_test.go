package faultproxy_test

// Lists that are throttled, or that stop, in their midst.

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/test/faultproxy"
)

var lists = faultproxy.Match{Verb: "list", Resource: "configmaps"}

func (r *rig) list(ctx context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return r.client.CoreV1().ConfigMaps(r.namespace).List(ctx, options)
}

func TestSecondPageOfAListIsRefused(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		r.create("b")
		r.create("c")
		refused := r.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Verb: "list", Where: faultproxy.InPages},
			Times: 1,
			Do:    faultproxy.Refuse(faultproxy.InternalError()),
		})
		first, err := r.list(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || first.Continue == "" {
			t.Fatalf("the first page: %v, %v; want one with another after it", first, err)
		}
		if _, err := r.list(t.Context(), metav1.ListOptions{Limit: 1, Continue: first.Continue}); !apierrors.IsInternalError(err) || refused.Fired() != 1 {
			t.Errorf("the second page: %v", err)
		}
		if _, err := r.list(t.Context(), metav1.ListOptions{Limit: 1, Continue: first.Continue}); err != nil {
			t.Errorf("the second page again: %v", err)
		}
	})
}

func TestListStallsInItsMidst(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		stalled := r.proxy.Add(faultproxy.Rule{Match: lists, Do: faultproxy.StallBody(100)})
		told := make(chan error, 1)
		go func() {
			list, err := r.list(within(t, deadline), metav1.ListOptions{})
			if err == nil && len(list.Items) == 0 {
				t.Error("the list is empty")
			}
			told <- err
		}()
		waitFired(t, stalled, 1)
		if _, err := r.proxy.WaitRequests(within(t, deadline), 1, lists, func(q *faultproxy.Request) bool { return !q.Replied.IsZero() }); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-told:
			t.Errorf("the list ended before it was released: %v", err)
		case <-within(t, 100*time.Millisecond).Done():
		}
		stalled.Release()
		if err := <-told; err != nil {
			t.Errorf("the list: %v", err)
		}
	})
}

func TestListIsCutOffInItsMidst(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		r.create("a")
		r.proxy.Add(faultproxy.Rule{Match: lists, Times: 1, Do: faultproxy.CutBody(100)})
		if list, err := r.list(within(t, deadline), metav1.ListOptions{}); err == nil {
			t.Errorf("the client was told %d objects, want an error", len(list.Items))
		}
		if _, err := r.list(within(t, deadline), metav1.ListOptions{}); err != nil {
			t.Errorf("the list after it: %v", err)
		}
	})
}
