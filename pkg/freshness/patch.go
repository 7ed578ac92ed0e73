package freshness

// Patch: the smallest change that a write needs to carry, and none if none is needed.
//
// Closes: writes that change nothing, which wake everybody who watches; status storms,
// where two writers answer each other; lost updates, where a whole object is written back
// and with it what somebody else has changed meanwhile.
//
// How: a JSON merge patch (RFC 7386) of what differs, with the uid and the resourceVersion
// that it was decided on, so that the API server refuses it with 409 if the object has
// changed. A change that isn't worth a write gives no patch.
//
// Costs: both objects are marshalled.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PatchOptions configures MergePatch. The zero value is useful.
type PatchOptions struct {
	// Worth, if it isn't nil, tells of each value that differs whether that alone
	// is worth a write. path is where it stands, as status/conditions; from and to
	// are as encoding/json unmarshals them, nil if the value is absent. If nothing
	// that differs is worth it there is no patch; if something is, all that differs
	// is in it.
	Worth func(path string, from, to any) bool
	// Unconditional leaves the uid and the resourceVersion out. The patch then
	// applies to whatever the object is by then.
	Unconditional bool
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

// MergePatch returns the smallest JSON merge patch that makes to out of from, or nil if
// there is nothing to write. Both are versions of one object; a list that differs is in
// the patch as a whole. It is for types.MergePatchType, with or without a subresource.
func MergePatch(from, to metav1.Object, options PatchOptions) ([]byte, error) {
	before, err := asMap(from)
	if err != nil {
		return nil, fmt.Errorf("patch %s/%s: %w", from.GetNamespace(), from.GetName(), err)
	}
	after, err := asMap(to)
	if err != nil {
		return nil, fmt.Errorf("patch %s/%s: %w", to.GetNamespace(), to.GetName(), err)
	}
	d := difference{worth: options.Worth}
	patch := d.between("", before, after)
	switch {
	case len(patch) == 0:
		options.Metrics.fired(GuardPatch, "nothing_to_write")
		return nil, nil
	case !d.worthwhile:
		options.Metrics.fired(GuardPatch, "below_threshold")
		return nil, nil
	}
	if !options.Unconditional {
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			patch["metadata"] = metadata
		}
		metadata["uid"], metadata["resourceVersion"] = from.GetUID(), from.GetResourceVersion()
	}
	return json.Marshal(patch)
}

// asMap returns an object as encoding/json sees it. Numbers stay as they are written,
// since a large one doesn't survive as a float.
func asMap(object any) (map[string]any, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var m map[string]any
	return m, decoder.Decode(&m)
}

// difference walks through two objects.
type difference struct {
	worth      func(path string, from, to any) bool
	worthwhile bool
}

// between returns the merge patch from one map to another.
func (d *difference) between(path string, from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, after := range to {
		before, ok := from[key]
		if ok && reflect.DeepEqual(before, after) {
			continue
		}
		beforeMap, wasMap := before.(map[string]any)
		afterMap, isMap := after.(map[string]any)
		if wasMap && isMap {
			if inner := d.between(path+key+"/", beforeMap, afterMap); len(inner) > 0 {
				patch[key] = inner
			}
			continue
		}
		d.note(path+key, before, after)
		patch[key] = after
	}
	for key, before := range from {
		if _, ok := to[key]; !ok {
			d.note(path+key, before, nil)
			patch[key] = nil // RFC 7386: remove it
		}
	}
	return patch
}

func (d *difference) note(path string, from, to any) {
	d.worthwhile = d.worthwhile || d.worth == nil || d.worth(path, from, to)
}
