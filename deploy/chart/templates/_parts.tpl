{{/* What each object of a part is labelled with: (dict "root" $ "part" "api") */}}
{{- define "gpuwright.labels" -}}
{{ include "gpuwright.selector" . }}
app.kubernetes.io/part-of: gpuwright
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "gpuwright.selector" -}}
app.kubernetes.io/name: gpuwright
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .part }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "gpuwright.image" -}}
{{ .root.Values.image.registry }}/gpuwright-{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Whom every pod runs as, and what it may not do. */}}
{{- define "gpuwright.pod" -}}
{{ if .account -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: true
{{- else -}}
automountServiceAccountToken: false # nothing in here speaks to Kubernetes
{{- end }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpuwright.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Pods of a part are spread over machines. */}}
{{- define "gpuwright.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "gpuwright.selector" . | nindent 8 }}
{{- end }}

{{- define "gpuwright.database" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secret }}, key: url}}
{{- if .Values.database.listen }}
- name: DATABASE_LISTEN_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secret }}, key: listen-url}}
{{- end }}
{{- end }}

{{- define "gpuwright.settings" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* The node of the pod that a request's token is bound to, for an admission policy. */}}
{{- define "gpuwright.node" -}}
- name: node
  expression: request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')
{{- end }}

{{/* Whether a claim's name is one of this node's: a hash ends it, so that no claim of a node "NAME.gpu-more" is. */}}
{{- define "gpuwright.claimed" -}}
{{ . }}.startsWith(variables.node + '.gpu-') && {{ . }}.substring(size(variables.node + '.gpu-')).matches('^[0-9a-f]{16}$')
{{- end }}
