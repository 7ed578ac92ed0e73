package freshness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planner is a reconcile function that reads a snapshot of all ConfigMaps, lets
// something happen, and confirms.
func planner(s *stall, happens func(), reads *int) Reconciler[string] {
	read := func() []metav1.Object {
		*reads++
		var objects []metav1.Object
		for _, obj := range s.configMaps.List() {
			if object := obj.(metav1.Object); object.GetLabels()["other"] == "" {
				objects = append(objects, object)
			}
		}
		return objects
	}
	return s.Middleware(func(ctx context.Context, _ string) (Result, error) {
		snapshot := read()
		happens()
		if err := Confirm(ctx, snapshot, read); err != nil {
			return Result{}, err
		}
		return Result{}, errWritten
	})
}

// errWritten is what planner returns when it goes on to its writes.
var errWritten = errors.New("written")

func TestAPlanIsSentBackIfItsObjectsHaveChangedSinceTheSnapshot(t *testing.T) {
	other := object("z", "u9", "120")
	other.Labels = map[string]string{"other": "1"}
	for _, test := range []struct {
		name    string
		happens func(t *testing.T, s *stall)
		written bool
		reads   int
	}{
		{"nothing happened", func(*testing.T, *stall) {}, true, 1},
		{"a bookmark came", func(_ *testing.T, s *stall) { s.configMaps.Bookmark("130") }, true, 2},
		{"an object of another key changed", func(t *testing.T, s *stall) { s.cached(t, other) }, true, 2},
		{"an object changed", func(t *testing.T, s *stall) { s.cached(t, object("a", "u1", "120")) }, false, 2},
		{"an object came", func(t *testing.T, s *stall) { s.cached(t, object("b", "u2", "120")) }, false, 2},
		{"an object went", func(t *testing.T, s *stall) { s.gone(t, "a", "120") }, false, 2},
		{"an object was deleted and made again", func(t *testing.T, s *stall) { s.cached(t, object("a", "u3", "120")) }, false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStall(t)
			s.cached(t, object("a", "u1", "110"))
			reads := 0
			_, err := planner(s, func() { test.happens(t, s) }, &reads)(t.Context(), "key")
			if got := errors.Is(err, errWritten); got != test.written {
				t.Errorf("written: %t, want %t (%v)", got, test.written, err)
			}
			if reads != test.reads {
				t.Errorf("the snapshot was read %d times, want %d", reads, test.reads)
			}
			var want []string
			if !test.written {
				want = []string{"key"}
				if err != nil {
					t.Errorf("got error %v, want none: to be sent back is no failure", err)
				}
			}
			if got := s.queued(t); !slices.Equal(got, want) {
				t.Errorf("got %q in the queue, want %q", got, want)
			}
		})
	}
}

func TestAPlanOnAnObjectThatTheCacheHoldsTooOldIsNeverLetThrough(t *testing.T) {
	s := newStall(t)
	relists := 0
	watermark := NewWatermark(nil, func() { relists++ })
	s.Guard(configMaps, watermark)
	handler := watermark.Handler(&told{})
	handler.OnAdd(object("a", "u1", "120"), false)
	s.cached(t, object("a", "u1", "110")) // and the handler wasn't told of it yet
	reads := 0
	reconcile := planner(s, func() {}, &reads)
	if _, err := reconcile(t.Context(), "key"); err != nil {
		t.Errorf("got %v, want the key sent back", err)
	}
	if got := firings(t, s.metrics, GuardConfirm, "old_cache_noticed"); got != 1 || relists != 1 {
		t.Errorf("noticed %d times with %d relists, want once with one", got, relists)
	}
	if result, err := reconcile(t.Context(), "key"); err != nil || !result.Parked {
		t.Errorf("got %+v, %v, want the key parked: the cache is old still", result, err)
	}
	s.cached(t, object("a", "u1", "120"))
	handler.OnUpdate(object("a", "u1", "110"), object("a", "u1", "120"))
	if _, err := reconcile(t.Context(), "key"); !errors.Is(err, errWritten) {
		t.Errorf("got %v, want the key let through: the cache has caught up", err)
	}
}

func TestAPlanOnAnObjectThatHasMovedOnIsPlannedAnew(t *testing.T) {
	s := newStall(t)
	watermark := NewWatermark(nil, nil)
	s.Guard(configMaps, watermark)
	s.cached(t, object("a", "u1", "110"))
	reads := 0
	reconcile := planner(s, func() {
		s.cached(t, object("a", "u1", "120"))
		watermark.Handler(&told{}).OnAdd(object("a", "u1", "120"), false)
	}, &reads)
	if _, err := reconcile(t.Context(), "key"); err != nil {
		t.Errorf("got %v, want the key sent back", err)
	}
	if got := s.Check("key").Cause; got != Fresh {
		t.Errorf("got %q, want fresh: only the snapshot was old", got)
	}
}

func TestAKeyThatNeverComesToRestIsLetThroughInTheEnd(t *testing.T) {
	s := newStall(t)
	version, reads := 110, 0
	reconcile := planner(s, func() {
		version++
		s.cached(t, object("a", "u1", fmt.Sprint(version)))
	}, &reads)
	var written []int
	for i := range 10 {
		if _, err := reconcile(t.Context(), "key"); errors.Is(err, errWritten) {
			written = append(written, i)
		}
	}
	if want := []int{3, 7}; !slices.Equal(written, want) {
		t.Errorf("let through at attempts %v, want %v", written, want)
	}
	if got := firings(t, s.metrics, GuardConfirm, "let_through"); got != 2 {
		t.Errorf("counted %d, want 2", got)
	}
}

func TestOutsideOfTheMiddlewareThereIsNothingToConfirm(t *testing.T) {
	err := Confirm(t.Context(), nil, func() []metav1.Object {
		t.Error("the snapshot was read again")
		return nil
	})
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
