package freshness

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func podToPatch() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u1", ResourceVersion: "90",
			Labels: map[string]string{"keep": "1", "drop": "1"},
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(9007199254740993))},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		},
	}
}

func TestAPatchHoldsWhatDiffersAndWhatItWasDecidedOn(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{"nothing", func(*corev1.Pod) {}, ``},
		{"a value", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
			`{"metadata":{"resourceVersion":"90","uid":"u1"},"status":{"phase":"Running"}}`},
		{"an addition", func(p *corev1.Pod) { p.Labels["new"] = "1" },
			`{"metadata":{"labels":{"new":"1"},"resourceVersion":"90","uid":"u1"}}`},
		{"a removal", func(p *corev1.Pod) { delete(p.Labels, "drop") },
			`{"metadata":{"labels":{"drop":null},"resourceVersion":"90","uid":"u1"}}`},
		{"a list, as a whole", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue },
			`{"metadata":{"resourceVersion":"90","uid":"u1"},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"status":"True","type":"Ready"}]}}`},
		{"a number too large for a float", func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds++ },
			`{"metadata":{"resourceVersion":"90","uid":"u1"},"spec":{"terminationGracePeriodSeconds":9007199254740994}}`},
	} {
		from := podToPatch()
		to := from.DeepCopy()
		test.change(to)
		got, err := MergePatch(from, to, PatchOptions{})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %s, %v\nwant %s", test.name, got, err, test.want)
		}
	}
}

func TestWhatIsNotWorthAWriteGivesNoPatchUnlessSomethingElseIs(t *testing.T) {
	metrics := NewMetrics()
	var paths []string
	options := PatchOptions{
		Worth: func(path string, _, _ any) bool {
			paths = append(paths, path)
			return path != "status/message"
		},
		Unconditional: true,
		Metrics:       metrics,
	}
	from := podToPatch()
	to := from.DeepCopy()
	to.Status.Message = "5 of 6"
	if got, err := MergePatch(from, to, options); got != nil || err != nil {
		t.Errorf("got %s, %v for a change that isn't worth it, want nothing", got, err)
	}
	to.Status.Phase = corev1.PodRunning
	got, err := MergePatch(from, to, options)
	if want := `{"status":{"message":"5 of 6","phase":"Running"}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if all := strings.Join(paths, " "); !strings.Contains(all, "status/phase") {
		t.Errorf("asked about %s, want status/phase among them", all)
	}
	if got, err := MergePatch(from, from, options); got != nil || err != nil {
		t.Errorf("got %s, %v for no change, want nothing", got, err)
	}
	for action, want := range map[string]int{"below_threshold": 1, "nothing_to_write": 1} {
		if got := firings(t, metrics, GuardPatch, action); got != want {
			t.Errorf("counted %s %d times, want %d", action, got, want)
		}
	}
}

// brokenObject can't be marshalled.
type brokenObject struct{ metav1.ObjectMeta }

func (brokenObject) MarshalJSON() ([]byte, error) { return nil, &json.UnsupportedValueError{} }

func TestAnObjectThatCannotBeMarshalledIsNamedInTheError(t *testing.T) {
	broken := &brokenObject{metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	for _, pair := range [][2]metav1.Object{{broken, podToPatch()}, {podToPatch(), broken}} {
		if _, err := MergePatch(pair[0], pair[1], PatchOptions{}); err == nil || !strings.HasPrefix(err.Error(), "patch ns/p: ") {
			t.Errorf("got %v, want an error that names the object", err)
		}
	}
}
